//! HTTP/2 as far as kubelet's registration needs it: unary calls over a socket of the node, one answer for each.
//!
//! kubelet's client sends the percent-encoded path of the socket as `:authority`. The HTTP libraries of Rust refuse that
//! as malformed, so that these calls are answered below them. No header of a request is read: its body tells the two
//! calls of the service apart.

use std::collections::HashMap;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The most bytes of a frame: the default of HTTP/2, which an empty SETTINGS frame leaves in place.
const FRAME: usize = 16_384;
/// The most bytes of all requests that are not answered yet.
const OPEN: usize = 65_536;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

/// The flag of DATA and HEADERS on the last frame of a request.
const END_STREAM: u8 = 1;
/// The flag of SETTINGS and PING on an answer: the same bit.
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// `:status: 200` of the static table, then `content-type: application/grpc` with its name from there (31), not indexed.
const ANSWER_HEADERS: &[u8] = b"\x88\x0f\x10\x10application/grpc";
/// `grpc-status: 0`, not indexed.
const TRAILERS: &[u8] = b"\x00\x0bgrpc-status\x010";

/// Answers the calls of a connection until its other end closes it.
///
/// # Errors
/// The connection breaks, or what comes is no HTTP/2.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    answer: impl Fn(&[u8]) -> Vec<u8>,
) -> io::Result<()> {
    let mut preface = [0; PREFACE.len()];
    stream.read_exact(&mut preface).await?;
    if preface != *PREFACE {
        return Err(malformed("it does not begin as HTTP/2 does"));
    }
    send(&mut stream, Header { kind: SETTINGS, flags: 0, stream: 0 }, &[]).await?;
    let mut open: HashMap<u32, Vec<u8>> = HashMap::new();
    while let Some((kind, flags, id, mut payload)) = frame(&mut stream).await? {
        match kind {
            SETTINGS if flags & ACK == 0 => {
                send(&mut stream, Header { kind: SETTINGS, flags: ACK, stream: 0 }, &[]).await?;
            }
            PING if flags & ACK == 0 => {
                send(&mut stream, Header { kind: PING, flags: ACK, stream: 0 }, &payload).await?;
            }
            GOAWAY => return Ok(()),
            RST_STREAM => drop(open.remove(&id)),
            DATA | HEADERS => {
                let body = open.entry(id).or_default();
                if kind == DATA {
                    unpad(&mut payload, flags)?;
                    body.extend(payload);
                }
                if flags & END_STREAM != 0 {
                    let body = open.remove(&id).unwrap_or_default();
                    respond(&mut stream, id, &answer(message(&body)?)).await?;
                }
                if open.values().map(|body| body.len() + 1).sum::<usize>() > OPEN {
                    return Err(malformed("too much is asked at once"));
                }
            }
            // Windows, priorities, and what HTTP/2 may have some day: nothing here depends on them.
            _ => {}
        }
    }
    Ok(())
}

/// The next frame: kind, flags, stream and payload. `None` at the end.
async fn frame<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Option<(u8, u8, u32, Vec<u8>)>> {
    let mut head = [0; 9];
    if let Err(error) = stream.read_exact(&mut head).await {
        return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(None) } else { Err(error) };
    }
    let [l0, l1, l2, kind, flags, id @ ..] = head;
    let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
    if length > FRAME {
        return Err(malformed("a frame is larger than agreed"));
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await?;
    Ok(Some((kind, flags, u32::from_be_bytes(id) & 0x7fff_ffff, payload)))
}

/// Header of a frame, without its length.
#[derive(Debug, Clone, Copy)]
struct Header {
    kind: u8,
    flags: u8,
    /// 0 is the connection itself.
    stream: u32,
}

async fn send<S: AsyncWrite + Unpin>(
    stream: &mut S,
    Header { kind, flags, stream: id }: Header,
    payload: &[u8],
) -> io::Result<()> {
    let length = u32::try_from(payload.len()).map_err(|_| malformed("an answer is too long"))?.to_be_bytes();
    let mut all = length.get(1..).unwrap_or_default().to_vec();
    all.extend([kind, flags]);
    all.extend(id.to_be_bytes());
    all.extend(payload);
    stream.write_all(&all).await
}

/// Answers a call with a message of gRPC.
async fn respond<S: AsyncWrite + Unpin>(stream: &mut S, id: u32, answer: &[u8]) -> io::Result<()> {
    send(stream, Header { kind: HEADERS, flags: END_HEADERS, stream: id }, ANSWER_HEADERS).await?;
    let length = u32::try_from(answer.len()).map_err(|_| malformed("an answer is too long"))?;
    let mut body = vec![0];
    body.extend(length.to_be_bytes());
    body.extend(answer);
    send(stream, Header { kind: DATA, flags: 0, stream: id }, &body).await?;
    send(stream, Header { kind: HEADERS, flags: END_HEADERS | END_STREAM, stream: id }, TRAILERS).await?;
    stream.flush().await
}

/// Takes the padding off a payload.
fn unpad(payload: &mut Vec<u8>, flags: u8) -> io::Result<()> {
    if flags & PADDED == 0 {
        return Ok(());
    }
    let padding = payload.first().copied().map_or(0, usize::from);
    if payload.len() < padding + 1 {
        return Err(malformed("a frame has more padding than bytes"));
    }
    payload.truncate(payload.len() - padding);
    payload.remove(0);
    Ok(())
}

/// The message in a body of gRPC, which is not compressed.
fn message(body: &[u8]) -> io::Result<&[u8]> {
    match body {
        [] => Ok(&[]),
        [0, a, b, c, d, message @ ..] if u32::from_be_bytes([*a, *b, *c, *d]) as usize == message.len() => {
            Ok(message)
        }
        _ => Err(malformed("a request is no message of gRPC")),
    }
}

fn malformed(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the answer to these bytes.
    async fn answered(request: &[u8]) -> io::Result<Vec<u8>> {
        let (mut ours, theirs) = tokio::io::duplex(1 << 20);
        ours.write_all(request).await?;
        ours.shutdown().await?;
        serve(theirs, |question| [b"to ", question].concat()).await?;
        let mut all = Vec::new();
        ours.read_to_end(&mut all).await?;
        Ok(all)
    }

    fn frame_of(kind: u8, flags: u8, id: u8, payload: &[u8]) -> Vec<u8> {
        [&[0, 0, u8::try_from(payload.len()).expect("short"), kind, flags, 0, 0, 0, id], payload].concat()
    }

    #[tokio::test]
    async fn a_call_is_answered_whatever_its_headers_say() {
        let body = [&[0, 0, 0, 0, 2][..], b"hi"].concat();
        let padded = [&[3][..], &body, &[0, 0, 0]].concat();
        let request = [
            PREFACE.to_vec(),
            frame_of(SETTINGS, 0, 0, &[]),
            frame_of(HEADERS, END_HEADERS, 1, b"\x00\x0a:authority\x03%2F"),
            frame_of(DATA, END_STREAM | PADDED, 1, &padded),
            frame_of(PING, 0, 0, b"12345678"),
        ]
        .concat();
        let answer = answered(&request).await.expect("an answer");
        let expected = [
            frame_of(SETTINGS, 0, 0, &[]),
            frame_of(SETTINGS, ACK, 0, &[]),
            frame_of(HEADERS, END_HEADERS, 1, ANSWER_HEADERS),
            frame_of(DATA, 0, 1, &[&[0, 0, 0, 0, 5][..], b"to hi"].concat()),
            frame_of(HEADERS, END_HEADERS | END_STREAM, 1, TRAILERS),
            frame_of(PING, ACK, 0, b"12345678"),
        ]
        .concat();
        assert_eq!(answer, expected);
    }

    #[tokio::test]
    async fn what_is_no_http2_ends_the_connection() {
        for request in [
            b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(),
            [PREFACE.to_vec(), vec![0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]].concat(),
            [PREFACE.to_vec(), frame_of(DATA, PADDED, 1, &[9])].concat(),
            [PREFACE.to_vec(), frame_of(DATA, END_STREAM, 1, b"\x01\0\0\0\0")].concat(),
        ] {
            let error = answered(&request).await.expect_err("no HTTP/2");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
