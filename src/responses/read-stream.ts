import { createParser } from 'eventsource-parser';
import { readEvent, refused, type ResponseEnd, type ResponseEvent } from './wire.ts';

/** The largest event that is taken, UTF-16 code units: it holds the whole response. */
const largestEvent = 16 * 1024 * 1024;

/**
 * Reads server-sent events of a response, in chunks that are cut anywhere. Each piece of text is handed out as it
 * comes; the end is known from a terminal event alone, and nothing after it is looked at.
 */
export class ResponseStream {
  /** How the response ended, once that is known. */
  end: ResponseEnd | undefined;
  readonly #onText: (text: string) => void;
  readonly #decoder = new TextDecoder();
  readonly #places = new Set<string>();
  #text = '';
  #refusal = '';
  readonly #parser = createParser({
    onEvent: ({ event, data }) => this.#take(readEvent(event, data)),
    onError: ({ type }) => {
      if (type === 'max-buffer-size-exceeded') this.end ??= { kind: 'cut', why: 'an event is too large' };
    },
    maxBufferSize: largestEvent,
  });

  /** @param onText takes each piece of the answer's text, in order */
  constructor(onText: (text: string) => void) {
    this.#onText = onText;
  }

  /** Takes the next bytes. */
  push(chunk: Uint8Array): void {
    if (this.end === undefined) this.#parser.feed(this.#decoder.decode(chunk, { stream: true }));
  }

  /** Ends the stream: the last event may lack the empty line after it. Without a terminal event it is cut. */
  finish(): ResponseEnd {
    if (this.end === undefined) this.#parser.feed(`${this.#decoder.decode()}\n\n`);
    return this.end ?? { kind: 'cut', why: 'the stream ended without its last event' };
  }

  #take(event: ResponseEvent): void {
    if (this.end !== undefined) return;
    if (event.kind === 'text') this.#say(event.delta, event.place);
    if (event.kind === 'part' && !this.#places.has(event.place)) this.#say(event.text, event.place);
    if (event.kind === 'refusal') this.#refusal += event.delta;
    if (event.kind === 'end') this.end = this.#ended(event.end);
  }

  #say(text: string, place: string): void {
    this.#places.add(place);
    this.#text += text;
    if (text !== '') this.#onText(text);
  }

  // What was streamed is what was said; where nothing was, the last event brings all of it at once.
  #ended(end: ResponseEnd): ResponseEnd {
    if (end.kind !== 'completed' && end.kind !== 'incomplete') return end;
    if (this.#text === '' && end.text !== '') this.#say(end.text, '');
    if (end.kind === 'completed' && this.#text === '' && this.#refusal !== '')
      return refused(this.#refusal, end.response);
    return { ...end, text: this.#text };
  }
}
