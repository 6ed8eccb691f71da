/** A fault of the sandbox. The help and the documentation list all of them. */
export interface FaultEntry {
  name: string;
  /** The calls it strikes, with the protocol in brackets if it is just one: `submit (b)`. */
  on: string;
  does: string;
  /** The default percentage, if the fault takes one: a position in the response, or a probability. */
  percent?: number;
}

/**
 * Every fault. `name` strikes each time, `namexN` the first N times, and `name@P%` at P percent of the response
 * (`chaos`: with that probability). Both may be combined: `download-cutx2@40%`.
 */
export const FAULTS = [
  fault('auth-401', 'every call with a key', 'Refuses the key: HTTP 401.'),
  fault('balance-403', 'submit, tts, responses', 'HTTP 403, insufficient balance; nothing is created.'),
  fault('submit-429', 'submit', 'HTTP 429; nothing is created.'),
  fault('submit-429-retry-after', 'submit', 'HTTP 429 with Retry-After: 1; nothing is created.'),
  fault('submit-503', 'submit', 'HTTP 503, overloaded; nothing is created.'),
  fault('submit-500', 'submit', 'HTTP 500; nothing is created, which the client cannot know.'),
  fault('submit-reset', 'submit', 'Breaks the connection; nothing is created, which the client cannot know.'),
  fault('submit-reply-lost', 'submit', 'Creates and charges the task, then breaks the connection.'),
  fault('submit-500-after-accept', 'submit', 'Creates and charges the task, then answers HTTP 500.'),
  fault(
    'submit-502-after-accept',
    'submit',
    'Creates and charges the task, then answers HTTP 502 with HTML.',
  ),
  fault('submit-slow', 'submit', 'Creates the task, and answers after the time that one generation takes.'),
  fault(
    'client-gives-up',
    'submit, tts, responses',
    'Creates and charges, and answers after 30 times --pace: 90 seconds, longer than most tool calls of agents wait.',
  ),
  fault('submit-garbled', 'submit', 'Creates the task, and answers HTTP 200 with what is not JSON.'),
  fault('submit-empty', 'submit', 'Creates the task, and answers HTTP 200 with no body.'),
  fault('submit-cut', 'submit', 'Creates the task, and breaks the connection inside the answer.', 50),
  fault('b-submit-limited', 'submit (b)', 'HTTP 200 with RequestLimitExceeded; nothing is created.'),
  fault(
    'b-submit-internal-error',
    'submit (b)',
    'Creates the task, and answers HTTP 200 with InternalError.',
  ),
  fault('task-fails', 'submit', 'The task is accepted, fails at its end, and is refunded.'),
  fault('never-finishes', 'submit', 'The task is accepted, and never finishes.'),
  fault('short-video', 'submit', 'Halves the duration of the video; the declared seconds are billed.'),
  fault('small-video', 'submit', 'Halves the sides of the video.'),
  fault('silent-video', 'submit', 'The video has no sound.'),
  fault(
    'extra-charge',
    'submit',
    'Charges half as much again as the price; the bill shows the extra charge.',
  ),
  fault('a-filtered', 'submit (a)', 'The operation ends with every sample filtered.'),
  fault('a-partly-filtered', 'submit (a)', 'The operation ends with its last sample filtered.'),
  fault('b-finish-errcode', 'submit (b)', 'The task ends as FINISH with a non-zero ErrCode.'),
  fault('b-finish-errcodeext', 'submit (b)', 'The task ends as FINISH with ErrCode 0 and an ErrCodeExt.'),
  fault('poll-429', 'poll', 'HTTP 429.'),
  fault('poll-500', 'poll', 'HTTP 500.'),
  fault('poll-502', 'poll', 'HTTP 502 with HTML.'),
  fault('poll-503', 'poll', 'HTTP 503.'),
  fault('poll-reset', 'poll', 'Breaks the connection before the answer.'),
  fault('poll-garbled', 'poll', 'HTTP 200 with what is not JSON.'),
  fault('poll-cut', 'poll', 'Breaks the connection inside the answer.', 50),
  fault('poll-notfound', 'poll', 'Says that there is no such task.'),
  fault(
    'download-cut',
    'download',
    'Breaks the connection at this point of the file; a resumed download that starts there goes on.',
    50,
  ),
  fault('download-stall', 'download', 'Sends up to this point of the file, then nothing.', 50),
  fault('download-502', 'download', 'HTTP 502 with HTML.'),
  fault('download-html', 'download', 'HTTP 200 with an HTML page in place of the video.'),
  fault('download-json', 'download', 'HTTP 200 with a JSON error in place of the video.'),
  fault('download-gone', 'download', 'HTTP 410: the result is gone.'),
  fault('download-no-range', 'download', 'Ignores Range, and sends the whole file without a validator.'),
  fault('url-expired', 'download', 'HTTP 403: the address has expired.'),
  fault('models-502', 'models', 'HTTP 502 with HTML.'),
  fault('tts-429', 'tts', 'HTTP 429; nothing is charged.'),
  fault('tts-500', 'tts', 'HTTP 500; nothing is charged, which the client cannot know.'),
  fault('tts-cut', 'tts', 'The stream ends, without its end frame, at this point.', 50),
  fault('tts-reset', 'tts', 'Breaks the connection inside the stream.', 50),
  fault('tts-error-frame', 'tts', 'An error frame under HTTP 200 in place of the rest.', 50),
  fault('responses-429', 'responses', 'HTTP 429; nothing is charged.'),
  fault('responses-cut', 'responses', 'The stream ends, without its last event, at this point.', 50),
  fault('store-500', 'store', 'HTTP 500.'),
  fault('store-slow-down', 'store', 'HTTP 503 with SlowDown.'),
  fault('store-expired', 'store', 'HTTP 403 with ExpiredToken, as for credentials that are no longer valid.'),
  fault('store-reset', 'store', 'Breaks the connection of an upload; nothing is stored.'),
  fault('store-bad-digest', 'store', 'Refuses an upload with BadDigest: other bytes arrived.'),
  fault(
    'chaos',
    'every call',
    'With this probability a call fails in a way of its kind that chance chooses; --seed repeats it.',
    10,
  ),
];

function fault<Name extends string>(name: Name, on: string, does: string, percent?: number) {
  return { name, on, does, percent } satisfies FaultEntry;
}

/** Whether a fault can strike calls of a kind (`submit`, `poll`, `list`…) in an area. */
export function canStrike({ on }: FaultEntry, kind: string, area: string): boolean {
  const call = kind === 'list' ? 'models' : kind;
  return (
    on.startsWith('every call') || on.split(', ').some((one) => one === call || one === `${call} (${area})`)
  );
}

/** The name of a fault in the catalogue. */
export type FaultName = (typeof FAULTS)[number]['name'];

/** One strike of a fault. */
export interface FaultHit {
  name: FaultName;
  percent: number;
}
