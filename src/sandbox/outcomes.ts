import type { Call } from './exchange.ts';
import type { VideoArea } from './models.ts';
import type { FailureReason, Outcome } from './tasks.ts';

/** Words in a prompt, text or input that decide how its task ends, without any fault. */
export const MAGIC_WORDS = [
  { word: '[fail]', areas: 'a, b, c', does: 'The task fails at its end (B: by ErrCode).' },
  { word: '[fail-ext]', areas: 'b', does: 'The task ends as FINISH with ErrCode 0 and an ErrCodeExt.' },
  { word: '[filtered]', areas: 'a, b, c', does: 'The result is held back by the content policy.' },
  { word: '[partly-filtered]', areas: 'a', does: 'The last sample is held back, the others are delivered.' },
  { word: '[never]', areas: 'a, b, c', does: 'The task never finishes.' },
  { word: '[speech-error]', areas: 'tts', does: 'An error frame in place of all audio.' },
  { word: '[speech-breaks]', areas: 'tts', does: 'An error frame in place of the second half.' },
  { word: '[speech-cut]', areas: 'tts', does: 'The stream ends half way, without its end frame.' },
  { word: '[no-audio]', areas: 'tts', does: 'The end frame comes without any audio.' },
  { word: '[voice-denied]', areas: 'tts', does: 'HTTP 403: the voice is not authorised.' },
  { word: '[no-balance]', areas: 'tts, responses', does: 'HTTP 403, insufficient balance.' },
  { word: '[response-fails]', areas: 'responses', does: 'The response fails.' },
  { word: '[response-refuses]', areas: 'responses', does: 'The model refuses to answer.' },
] as const;

/** The outcome of a task that is about to be accepted: by its prompt, else by a fault, else success. */
export function settleOutcome(call: Call, area: VideoArea, prompt: string, samples = 1): Outcome {
  return byPrompt(area, prompt, samples) ?? byFault(call, area, samples) ?? { end: 'succeeds', filtered: 0 };
}

/** A failure with the words for it. */
export function failure(reason: FailureReason, message?: string): Outcome {
  return { end: 'fails', reason, message: message ?? MESSAGES[reason] };
}

const MESSAGES: Readonly<Record<FailureReason, string>> = {
  failed: 'The generation failed.',
  'failed-ext': 'The generation failed in the model.',
  filtered: 'The result was held back because it may violate the content policy.',
  rejected: 'The upstream rejected a value of the request.',
  'unreachable-asset': 'An asset of the request could not be fetched.',
};

function byPrompt(area: VideoArea, prompt: string, samples: number): Outcome | undefined {
  if (prompt.includes('[never]')) return { end: 'never' };
  if (prompt.includes('[fail]')) return failure('failed');
  if (prompt.includes('[filtered]')) return filtered(area, samples);
  if (area === 'b' && prompt.includes('[fail-ext]')) return failure('failed-ext');
  if (area === 'a' && prompt.includes('[partly-filtered]')) return { end: 'succeeds', filtered: 1 };
  return undefined;
}

function byFault(call: Call, area: VideoArea, samples: number): Outcome | undefined {
  const { gateway } = call;
  if (gateway.take('never-finishes')) return { end: 'never' };
  if (gateway.take('task-fails')) return failure('failed');
  if (area === 'a' && gateway.take('a-filtered')) return filtered(area, samples);
  if (area === 'a' && gateway.take('a-partly-filtered')) return { end: 'succeeds', filtered: 1 };
  if (area === 'b' && gateway.take('b-finish-errcode')) return failure('failed');
  if (area === 'b' && gateway.take('b-finish-errcodeext')) return failure('failed-ext');
  return undefined;
}

/** In Protocol A an operation with every sample filtered has no `error`: it ends well, with nothing in it. */
function filtered(area: VideoArea, samples: number): Outcome {
  return area === 'a' ? { end: 'succeeds', filtered: samples } : failure('filtered');
}
