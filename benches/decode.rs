//! How fast the bytes of a PBX become attempts, over recordings of load: framing alone, and all of it up to the
//! finished attempts (framing, mapping, tracking). `cargo bench --bench decode`.

use std::hint::black_box;
use std::io::Read;
use std::path::Path;

use bytes::BytesMut;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pointsman::cli::replay::{Index, Kind, Replay};
use pointsman::wire::ami::AmiCodec;
use pointsman::wire::esl::EslCodec;
use pointsman::wire::limits::FrameError;
use tokio_util::codec::Decoder;

/// How much a busy socket gives at once.
const READ: usize = 16 * 1024;

fn recording(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let packed = std::fs::read(path).expect("a fixture");
    let mut bytes = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(&packed[..]).expect("packed");
    decoder.read_to_end(&mut bytes).expect("whole");
    bytes
}

fn frames<D: Decoder<Error = FrameError> + Default>(bytes: &[u8]) -> usize {
    let mut codec = D::default();
    let mut buffer = BytesMut::new();
    let mut frames = 0;
    for read in bytes.chunks(READ) {
        buffer.extend_from_slice(read);
        while let Ok(Some(frame)) = codec.decode(&mut buffer) {
            black_box(&frame);
            frames += 1;
        }
    }
    frames
}

fn attempts(kind: Kind, bytes: &[u8]) -> usize {
    let mut replay = Replay::new(kind, Index::default());
    let mut attempts = 0;
    for read in bytes.chunks(READ) {
        let counted = replay.feed(read, &mut |attempt| {
            black_box(attempt);
            attempts += 1;
            Ok(())
        });
        counted.expect("counting does not fail");
    }
    attempts
}

fn decode(c: &mut Criterion) {
    for (kind, name) in [(Kind::Esl, "esl/load"), (Kind::Ami, "ami/asterisk22-load")] {
        let bytes = recording(&format!("{name}.raw.zst"));
        let mut group = c.benchmark_group(name);
        group.sample_size(10);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function("frames", |b| {
            b.iter(|| match kind {
                Kind::Esl => frames::<EslCodec>(&bytes),
                Kind::Ami => frames::<AmiCodec>(&bytes),
            });
        });
        group.bench_function("attempts", |b| {
            b.iter_batched(|| (), |()| attempts(kind, &bytes), BatchSize::PerIteration);
        });
        group.finish();
    }
}

criterion_group!(benches, decode);
criterion_main!(benches);
