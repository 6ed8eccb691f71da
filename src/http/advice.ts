import type { ErrorCode } from '../errors.ts';

const byCode: Partial<Record<ErrorCode, string>> = {
  auth: 'Check the key: "mgw auth status" tells where it comes from, and "mgw auth login" keeps another.',
  balance: 'Top up the account of the key, or use the key of another one.',
};

/** What to do about a refusal that says no more than its class (specification 5.1); undefined if that is open. */
export function adviceFor(code: ErrorCode): string | undefined {
  return byCode[code];
}

/** A gateway's message as a sentence, followed by advice if there is any. */
export function advised(message: string, advice: string | undefined): string {
  return advice === undefined ? message : `${asSentence(message)} ${advice}`;
}

/** A text that ends like a sentence, so that another one can follow it. */
export function asSentence(text: string): string {
  const end = text.trimEnd();
  return /[.!?。！？]$/.test(end) ? end : `${end}.`;
}
