import type { ErrorCode } from '../errors.ts';
import type { Failure, Reply } from '../exchange.ts';
import { adviceFor, withAdvice, messageIn, readFailure } from '../http/failures.ts';
import { tryParseJson } from '../json.ts';

/** One kind of failure that speech services tell in words or in a code of their own. */
interface Kind {
  words?: RegExp;
  codes?: RegExp;
  code: ErrorCode;
  /** What to do about it, put after the gateway's words. */
  advice?: string;
}

const wrongPath: Kind = {
  code: 'not_found',
  advice: 'The base URL must be the root of the gateway, with neither /v1 nor /api/v3 after it.',
};
const speakerAdvice =
  'Choose a voice that is authorised for this key and model: --speaker, tts.speaker in the config, or MGW_TTS_SPEAKER.';
const shorterAdvice = 'Send the text in pieces with --split.';

// The same number has several meanings, so words decide before codes. The first match counts.
const kinds: readonly Kind[] = [
  {
    words: /no readable text|EmptyRequest/i,
    codes: /^45002001$/,
    code: 'invalid_request',
    advice: 'The text must hold something that can be spoken: letters or digits.',
  },
  {
    words: /TextLimit|max limit|request size too large|text.{0,40}too long/i,
    codes: /^(40402003|3010)$/,
    code: 'invalid_request',
    advice: shorterAdvice,
  },
  {
    words:
      /_lifetime|insufficient (?!permission|scope|privilege)|insufficient_|balance|arrears|余额不足|额度不足|欠费/i,
    code: 'balance',
  },
  {
    words: /concurrency|quota exceeded|too many requests|rate[ _-]?limit/i,
    codes: /^(45000292|3003|3005)$/,
    code: 'rate_limited',
  },
  {
    words:
      /(speaker|voice).{0,80}(permission|denied|unauthori[sz]ed|unsupported|forbidden|no access|not (granted|authori[sz]ed|allowed|supported|match|available))|(permission|unauthori[sz]ed|unsupported|no access).{0,80}(speaker|voice)|mismatched with speaker|(音色|发音人|声音).{0,40}(授权|权限|无权|不支持)/i,
    code: 'auth',
    advice: speakerAdvice,
  },
  {
    words:
      /(speaker|voice).{0,80}(not found|not exist|invalid|empty|missing|required)|(invalid|empty|missing|no such) (speaker|voice)/i,
    codes: /^(45002000|3050)$/,
    code: 'invalid_request',
    advice: speakerAdvice,
  },
  {
    words: /not granted/i,
    codes: /^45000030$/,
    code: 'auth',
    advice: 'The groups of the key must allow the speech model: use another key, or have this one allowed.',
  },
  { words: /invalid (token|x?-?api[- ]?key)|无效的令牌/i, codes: /^45000010$/, code: 'auth' },
  { ...wrongPath, words: /unsupported_endpoint/i },
  { words: /sensitive|moderation|content policy|violation|敏感|违规/i, code: 'content_policy' },
  // What is left has only its number to go by.
  { codes: /^(4\d{7}|3001|3011)$/, code: 'invalid_request' },
  { codes: /^(5\d{7}|3030|3031)$/, code: 'server_error' },
];

/**
 * What an application error of a speech stream means (specification 3.4, 7): read from the gateway's words
 * first, then from its code. What nothing is known about is `server_error`.
 */
export function speechFailure(message: string, nativeCode: string | undefined, requestId?: string): Failure {
  const kind = kindOf(message, nativeCode);
  const words =
    message.trim() === '' ? `The gateway answered with error ${nativeCode ?? ''}` : message.trim();
  const code = kind?.code ?? 'server_error';
  return { code, message: withAdvice(words, kind?.advice ?? adviceFor(code)), nativeCode, requestId };
}

/**
 * What an HTTP error of the speech endpoint means: like every other area's, but for what only speech knows.
 * An empty body gives way to the service's own headers (`X-Api-Status-Code`, `X-Api-Message`).
 */
export function speechHttpFailure(reply: Reply): Failure {
  const failure = readFailure(reply);
  const { 'x-api-message': headerMessage, 'x-api-status-code': headerCode } = reply.headers;
  const words = messageIn(tryParseJson(reply.text)) ?? headerMessage;
  const nativeCode = failure.nativeCode ?? headerCode;
  const kind =
    kindOf(words ?? plainWords(reply), nativeCode) ?? (reply.status === 404 ? wrongPath : undefined);
  const code = reply.status >= 500 && kind?.code !== 'auth' ? failure.code : (kind?.code ?? failure.code);
  return {
    ...failure,
    nativeCode,
    code,
    message: withAdvice(words ?? failure.message, kind?.advice ?? adviceFor(code)),
  };
}

// A proxy's page says "load balancer" and means no balance.
function plainWords({ text }: Reply): string {
  return /^\s*[<{[]/.test(text) ? '' : text.slice(0, 1000);
}

function kindOf(message: string, nativeCode: string | undefined): Kind | undefined {
  const byWords = kinds.find(({ words }) => words?.test(message) || words?.test(nativeCode ?? ''));
  return byWords ?? kinds.find(({ codes }) => codes?.test(nativeCode ?? ''));
}
