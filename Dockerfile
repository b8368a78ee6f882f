# pointsman in a container of its own: a build stage with Rust, and a small Debian with the program, run by a user
# without rights.
#
#   docker build -t pointsman .
#   docker run -v ./pointsman.toml:/etc/pointsman/pointsman.toml:ro -v pointsman:/var/lib/pointsman pointsman
#
# Where this was written no container engine was at hand: this file has been read with care and not been run.

FROM rust:1.95-slim-bookworm AS build
# C compiler and cmake: the TLS library and SQLite are built from source.
RUN apt-get update && apt-get install -y --no-install-recommends cmake g++ make && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked && cp target/release/pointsman /usr/local/bin/pointsman

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 8321 --home-dir /var/lib/pointsman --shell /usr/sbin/nologin pointsman \
    && install -d -o pointsman -g pointsman -m 0750 /var/lib/pointsman /run/pointsman
COPY --from=build /usr/local/bin/pointsman /usr/local/bin/pointsman
USER pointsman
VOLUME /var/lib/pointsman
# Exits with 1 while the program does not answer.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s \
    CMD ["pointsman", "status", "--config", "/etc/pointsman/pointsman.toml", "--json"]
# SIGTERM ends it properly; the variables stay as they are.
STOPSIGNAL SIGTERM
ENTRYPOINT ["pointsman"]
CMD ["run", "--config", "/etc/pointsman/pointsman.toml"]
