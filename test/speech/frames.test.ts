import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { FrameSplitter } from '../../src/speech/json-frames.ts';

interface Split {
  frames: string[];
  fault: string | undefined;
}

/**
 * Returns a splitter's output for a stream whose chunks end at the given offsets. Each chunk's memory is reused for the
 * next.
 */
function split(stream: string | Buffer, cuts: readonly number[] = [], limit?: number): Split {
  const splitter = new FrameSplitter(limit);
  const frames = chunks(Buffer.from(stream), cuts).flatMap((chunk) => {
    const texts = splitter.push(chunk).map(String);
    chunk.fill('x');
    return texts;
  });
  splitter.end();
  return { frames, fault: splitter.fault };
}

function chunks(bytes: Buffer, cuts: readonly number[]): Buffer[] {
  const places = [0, ...cuts.map((cut) => cut % (bytes.length + 1)).sort((a, b) => a - b), bytes.length];
  return places.slice(1).map((end, index) => bytes.subarray(places[index], end));
}

const everyByte = (stream: string): number[] => [...Buffer.from(stream).keys()];
const first = '{"code":0,"message":"","data":"SGVsbG8="}';
const second = '{"code":20000000,"message":"ok","data":null,"usage":{"text_words":10}}';

describe('speech frames', () => {
  test.each([
    ['frames without separators', first + second],
    ['newlines', `${first}\n${second}\n`],
    ['CRLF and blank lines', `\r\n${first}\r\n\r\n${second}`],
    ['byte order marks', `\ufeff${first}\n\ufeff${second}`],
    ['server-sent events', `event: 352\ndata: ${first}\n\nevent:152\r\ndata:${second}\n\n`],
    ['comments and other fields', `: ping {1}\nid: {7}\nretry: 10\ndata: ${first}\ndata:\n${second}`],
    ['a closing event', `data: ${first}\n\ndata: ${second}\n\ndata: [DONE]\n\n`],
    ['commas, record separators and NUL', `${first},\x1e${second}\0 ,\n`],
    ['a comment without an end', `${first}${second}\n: bye`],
  ])('are found in a stream that contains %s', (_, stream) => {
    const expected = { frames: [first, second], fault: undefined };
    expect(split(stream)).toEqual(expected);
    expect(split(stream, everyByte(stream))).toEqual(expected);
  });

  test.each([
    ['a line break', '\n'],
    ['CRLF', '\r\n'],
  ])('are found if each is on several data lines that end with %s', (_, lineEnd) => {
    const value = { code: 0, message: '\ndata:', data: { a: [true, null, 'data:'], b: {} } };
    const lines = JSON.stringify(value, null, 1).split('\n');
    const stream = [...lines, ...lines].map((line) => `data:${line}${lineEnd}`).join('');
    for (const cuts of [[], everyByte(stream)]) {
      const { frames, fault } = split(stream, cuts);
      expect(fault).toBeUndefined();
      expect(frames.map((frame): unknown => JSON.parse(frame))).toEqual([value, value]);
    }
  });

  test('are found even if their strings contain braces, quotes and backslashes', () => {
    const frame = JSON.stringify({
      code: 0,
      '}{"\\': '{"\\\\"}\n\u2028',
      data: null,
      words: [{ word: '其' }],
    });
    const stream = `${frame}${frame.replaceAll('其', '\\u5176')}`;
    for (let at = 0; at <= Buffer.byteLength(stream); at += 1) {
      expect(split(stream, [at]).frames).toEqual([frame, frame.replaceAll('其', '\\u5176')]);
    }
  });

  const text = fc.string({
    unit: fc.constantFrom('"', '\\', '{', '}', ':', '\n', 'é', '其', '😀', 'data:', 'a'),
  });
  const frame = fc
    .dictionary(text, fc.oneof(text, fc.constant(null), fc.record({ a: text, b: fc.array(text) })))
    .map((value) => JSON.stringify(value));
  const gap = fc.constantFrom('', '\n', '\r\n', ' ', '\n\n', '\ndata: ', '\nevent: 352\ndata:', '\ufeff');

  test('are found regardless of separators and chunk boundaries', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(gap, frame)), fc.array(fc.nat()), (parts, cuts) => {
        const stream = parts.flat().join('');
        expect(split(stream, cuts)).toEqual({ frames: parts.map(([, one]) => one), fault: undefined });
      }),
      { numRuns: 100 },
    );
  });

  test('are returned as soon as they are complete', () => {
    const splitter = new FrameSplitter();
    expect(splitter.push(Buffer.from(first.slice(0, -1)))).toEqual([]);
    expect(splitter.push(Buffer.from(`}${second}`)).map(String)).toEqual([first, second]);
  });
});

describe('an error in a stream of speech frames', () => {
  test.each([
    [
      'a web page',
      '<html><body>Please sign in</body></html>',
      /an invalid frame: <html>.*check the base URL/,
    ],
    ['text between frames', `${first}oops\n${second}`, /an invalid frame: oops/],
    ['an unknown prefix', `dat: ${first}`, /an invalid frame: dat:/],
    ['an array', `[${first},${second}]`, /an invalid frame: \[/],
    ['a truncated frame', `${first}${second.slice(0, 30)}`, /ends inside a frame/],
    ['a truncated string', '{"code":0,"data":"SGVs\\', /ends inside a frame/],
    ['a line without an end', 'x'.repeat(20_000), /an invalid frame: x{200}$/],
  ])('is reported if the stream contains %s', (_, stream, fault) => {
    expect(split(stream).fault).toMatch(fault);
    expect(split(stream, everyByte(stream).slice(0, 300)).fault).toMatch(fault);
  });

  test('is followed by no further frame', () => {
    const splitter = new FrameSplitter();
    expect(splitter.push(Buffer.from(`${first}<${first}`)).map(String)).toEqual([first]);
    expect(splitter.push(Buffer.from(second))).toEqual([]);
  });

  test('is not reported if the stream is empty', () => {
    expect(split('')).toEqual({ frames: [], fault: undefined });
  });

  test("is reported if a frame exceeds the limit, even before the frame's end arrives", () => {
    const frame = `{"data":"${'A'.repeat(100)}"}`;
    expect(split(frame, [], frame.length).fault).toBeUndefined();
    expect(split(frame, [], frame.length - 1).fault).toMatch(/exceeds 110 bytes/);
    expect(split(frame, [50], frame.length - 1)).toMatchObject({ frames: [] });
  });

  test('is reported after 16 MiB of an endless frame', () => {
    const splitter = new FrameSplitter();
    const chunk = Buffer.alloc(1024 * 1024, 'A');
    splitter.push(Buffer.from('{"data":"'));
    let frameCount = 0;
    for (; splitter.fault === undefined && frameCount < 64; frameCount += 1) splitter.push(chunk);
    expect(frameCount).toBe(16);
  });
});
