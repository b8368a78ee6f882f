//! All connections' states: the one place that the engine, `pointsman judge` and the backtest feed attempts to.
