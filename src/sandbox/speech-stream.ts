import { Readable } from 'node:stream';
import { speechChunks, type SpeechOptions } from './media/speech.ts';

/** How a stream of speech ends; percentages are those of its audio. */
export type SpeechEnd =
  | { kind: 'well' }
  /** An error frame in place of the rest. */
  | { kind: 'error'; percent: number }
  /** No more frames, and a proper end of the body. */
  | { kind: 'cut'; percent: number }
  /** The connection breaks. */
  | { kind: 'reset'; percent: number }
  /** The end frame without any audio. */
  | { kind: 'silent' };

/**
 * The body of an answer of speech (specification 2.6, 4.4): frames that are adjacent here and separated there, in
 * chunks that are cut at awkward places. `usage` goes into the end frame, if it was asked for. Throws in the
 * middle if the connection is to break.
 */
export function speechStream(
  options: SpeechOptions,
  end: SpeechEnd,
  usage: number | undefined,
): AsyncIterable<Uint8Array> {
  return Readable.from(pieces(options, end, usage));
}

function* pieces(options: SpeechOptions, end: SpeechEnd, usage: number | undefined): Generator<Uint8Array> {
  yield* awkwardly(frames(options, end, usage));
  if (end.kind === 'reset') throw new Error('the connection is to break here');
}

function* frames(options: SpeechOptions, end: SpeechEnd, usage: number | undefined): Generator<string> {
  const sentence = { phonemes: [], text: options.text.slice(0, 200), words: [] };
  yield frameText({ code: 0, message: '', data: null, sentence });
  yield* audioFrames(options, end);
  if (end.kind === 'error')
    yield frameText({ code: 55_000_000, message: 'the synthesis broke off: "server error" {1}' });
  if (end.kind !== 'well' && end.kind !== 'silent') return;
  const counted = usage === undefined ? {} : { usage: { text_words: usage } };
  yield frameText({ code: 20_000_000, message: 'ok', data: null, ...counted });
}

function* audioFrames(options: SpeechOptions, end: SpeechEnd): Generator<string> {
  if (end.kind === 'silent') return;
  const most = 'percent' in end ? Math.floor((count(options) * end.percent) / 100) : Infinity;
  let made = 0;
  for (const fragment of speechChunks(options)) {
    if (made >= most) return;
    made += 1;
    yield frameText({ code: 0, message: '', data: Buffer.from(fragment).toString('base64') });
  }
}

function count(options: SpeechOptions): number {
  let made = 0;
  for (const fragment of speechChunks(options)) made += fragment.length > 0 ? 1 : 0;
  return made;
}

function frameText(frame: object): string {
  // Services of this kind escape the slash, and some of what is not ASCII.
  return JSON.stringify(frame)
    .replaceAll('/', '\\/')
    .replace(/[\u00c0-\u024f]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

const GAPS = ['\n', '', '\r\n', '', '\n\n', ' '];
/** Sizes of the chunks in turn, in bytes: they cut frames, escapes and characters, and join frames too. */
const CHUNKS = [40, 1, 3, 2000, 7, 64, 32_768, 500];

function* awkwardly(texts: Iterable<string>): Generator<Uint8Array> {
  let held: Buffer = Buffer.alloc(0);
  let turn = 0;
  let frame = 0;
  for (const text of texts) {
    held = Buffer.concat([held, Buffer.from(text + (GAPS[frame++ % GAPS.length] ?? ''))]);
    for (let size = sizeAt(turn); held.length > size; size = sizeAt(turn)) {
      yield held.subarray(0, size);
      held = held.subarray(size);
      turn += 1;
    }
  }
  if (held.length > 0) yield held;
}

function sizeAt(turn: number): number {
  return CHUNKS[turn % CHUNKS.length] ?? 1;
}
