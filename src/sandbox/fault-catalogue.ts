/** One fault: how it is called, where it strikes and what it does. Read by the help and the documentation too. */
export interface FaultEntry {
  name: string;
  /** The calls it strikes. */
  on: string;
  does: string;
  /** Where the fault takes a percentage (a position in the answer, a probability): the one taken when none is given. */
  percent?: number;
}

/**
 * Every fault there is. `name` strikes each time, `namexN` the first N times, `name@P%` at P percent of the
 * answer (`chaos`: with that probability); both may be combined (`download-cutx2@40%`).
 */
export const FAULTS = [
  { name: 'auth-401', on: 'every call with a key', does: 'Refuses the key: HTTP 401.' },
  {
    name: 'balance-403',
    on: 'submit, tts, responses',
    does: 'HTTP 403, insufficient balance; nothing is created.',
  },

  { name: 'submit-429', on: 'submit', does: 'HTTP 429; nothing is created.' },
  {
    name: 'submit-429-retry-after',
    on: 'submit',
    does: 'HTTP 429 with Retry-After: 1; nothing is created.',
  },
  { name: 'submit-503', on: 'submit', does: 'HTTP 503, overloaded; nothing is created.' },
  { name: 'submit-500', on: 'submit', does: 'HTTP 500; nothing is created, which the client cannot know.' },
  {
    name: 'submit-reset',
    on: 'submit',
    does: 'Breaks the connection; nothing is created, which the client cannot know.',
  },
  {
    name: 'submit-reply-lost',
    on: 'submit',
    does: 'Creates and charges the task, then breaks the connection.',
  },
  {
    name: 'submit-500-after-accept',
    on: 'submit',
    does: 'Creates and charges the task, then answers HTTP 500.',
  },
  {
    name: 'submit-502-after-accept',
    on: 'submit',
    does: 'Creates and charges the task, then answers HTTP 502 with HTML.',
  },
  {
    name: 'submit-slow',
    on: 'submit',
    does: 'Creates the task, and answers after the time that one generation takes.',
  },
  {
    name: 'submit-garbled',
    on: 'submit',
    does: 'Creates the task, and answers HTTP 200 with what is not JSON.',
  },
  { name: 'submit-empty', on: 'submit', does: 'Creates the task, and answers HTTP 200 with no body.' },
  {
    name: 'submit-cut',
    on: 'submit',
    does: 'Creates the task, and breaks the connection inside the answer.',
    percent: 50,
  },
  {
    name: 'b-submit-limited',
    on: 'submit (b)',
    does: 'HTTP 200 with RequestLimitExceeded; nothing is created.',
  },
  {
    name: 'b-submit-internal-error',
    on: 'submit (b)',
    does: 'Creates the task, and answers HTTP 200 with InternalError.',
  },

  { name: 'task-fails', on: 'submit', does: 'The task is accepted, fails at its end, and is refunded.' },
  { name: 'never-finishes', on: 'submit', does: 'The task is accepted, and runs for ever.' },
  { name: 'a-filtered', on: 'submit (a)', does: 'The operation ends with every sample filtered.' },
  { name: 'a-partly-filtered', on: 'submit (a)', does: 'The operation ends with its last sample filtered.' },
  { name: 'b-finish-errcode', on: 'submit (b)', does: 'The task ends as FINISH with a non-zero ErrCode.' },
  {
    name: 'b-finish-errcodeext',
    on: 'submit (b)',
    does: 'The task ends as FINISH with ErrCode 0 and an ErrCodeExt.',
  },

  { name: 'poll-429', on: 'poll', does: 'HTTP 429.' },
  { name: 'poll-500', on: 'poll', does: 'HTTP 500.' },
  { name: 'poll-502', on: 'poll', does: 'HTTP 502 with HTML.' },
  { name: 'poll-503', on: 'poll', does: 'HTTP 503.' },
  { name: 'poll-reset', on: 'poll', does: 'Breaks the connection before the answer.' },
  { name: 'poll-garbled', on: 'poll', does: 'HTTP 200 with what is not JSON.' },
  { name: 'poll-cut', on: 'poll', does: 'Breaks the connection inside the answer.', percent: 50 },
  { name: 'poll-notfound', on: 'poll', does: 'Says that there is no such task.' },

  {
    name: 'download-cut',
    on: 'download',
    does: 'Breaks the connection at this point of the file; a resumed download that starts there goes on.',
    percent: 50,
  },
  {
    name: 'download-stall',
    on: 'download',
    does: 'Sends up to this point of the file, then nothing.',
    percent: 50,
  },
  { name: 'download-502', on: 'download', does: 'HTTP 502 with HTML.' },
  { name: 'download-html', on: 'download', does: 'HTTP 200 with an HTML page in place of the video.' },
  { name: 'download-json', on: 'download', does: 'HTTP 200 with a JSON error in place of the video.' },
  { name: 'download-gone', on: 'download', does: 'HTTP 410: the result is gone.' },
  {
    name: 'download-no-range',
    on: 'download',
    does: 'Ignores Range, and sends the whole file without a validator.',
  },
  { name: 'url-expired', on: 'download', does: 'HTTP 403: the address has expired.' },

  { name: 'models-502', on: 'models', does: 'HTTP 502 with HTML.' },

  { name: 'tts-429', on: 'tts', does: 'HTTP 429; nothing is charged.' },
  { name: 'tts-500', on: 'tts', does: 'HTTP 500; nothing is charged, which the client cannot know.' },
  { name: 'tts-cut', on: 'tts', does: 'The stream ends, without its end frame, at this point.', percent: 50 },
  { name: 'tts-reset', on: 'tts', does: 'Breaks the connection inside the stream.', percent: 50 },
  {
    name: 'tts-error-frame',
    on: 'tts',
    does: 'An error frame under HTTP 200 in place of the rest.',
    percent: 50,
  },

  { name: 'responses-429', on: 'responses', does: 'HTTP 429; nothing is charged.' },
  {
    name: 'responses-cut',
    on: 'responses',
    does: 'The stream ends, without its last event, at this point.',
    percent: 50,
  },

  {
    name: 'chaos',
    on: 'every call',
    does: 'With this probability a call fails in a way of its kind that chance chooses; --seed repeats it.',
    percent: 10,
  },
] as const satisfies readonly FaultEntry[];
