import { bearer, jsonBody, jsonHeaders, type Reply } from '../../../src/exchange.ts';
import { readFailure } from '../../../src/http/failures.ts';
import { textAt, tryParseJson } from '../../../src/json.ts';
import { valueFlag, wholeNumber } from '../../../src/protocols/flag.ts';
import type { Protocol, QueryVerdict } from '../../../src/protocols/protocol.ts';
import { isSuccess, judgeFailedSubmission, unreadable } from '../../../src/protocols/verdicts.ts';

/** A protocol for tests that no gateway supports. The fields and paths differ from those of all other protocols. */
export const d: Protocol = {
  name: 'd',
  about: 'Protocol D: a toy',
  examples: ['mgw video d submit "a boat" -m toy-1 -d 5'],
  setExample: 'length=5',
  modelMarks: /^toyvideo$/,
  auth: bearer,
  flags: [
    valueFlag('-m, --model <name>', 'engine', 'the model'),
    valueFlag('--prompt <text>', 'words', 'what the video shows'),
    valueFlag('-d, --duration <seconds>', 'length', 'length in whole seconds', { parse: wholeNumber }),
    valueFlag('--seed <n>', 'dice.seed', 'random seed', { parse: wholeNumber }),
  ],
  checks: () => import('./checks.ts'),
  normalize: (body) => body,
  quantityOf: (body) => ({ videos: 1, seconds: Number(body['length']), body }),
  modelOf: (body) => textAt(body, 'engine'),
  submission: (body) => ({ method: 'POST', path: '/toy', headers: jsonHeaders, body: jsonBody(body) }),
  readSubmission: (reply) => {
    if (!isSuccess(reply)) return judgeFailedSubmission(reply);
    const handle = textAt(tryParseJson(reply.text), 'toy');
    return handle === undefined
      ? { kind: 'unknown', failure: unreadable(reply, 'task id') }
      : { kind: 'accepted', handle };
  },
  query: (handle) => ({ method: 'GET', path: `/toy/${encodeURIComponent(handle)}`, headers: {} }),
  readQuery,
  notReady: () => false,
};

function readQuery(reply: Reply, handle: string): QueryVerdict {
  const nativeStatus = textAt(tryParseJson(reply.text), 'phase');
  if (nativeStatus === undefined) return { kind: 'again', failure: readFailure(reply) };
  const path = `/toy/${encodeURIComponent(handle)}/film`;
  const results = [{ sources: [{ kind: 'gateway' as const, path }] }];
  return nativeStatus === 'baked'
    ? { kind: 'observation', state: 'succeeded', nativeStatus, results }
    : { kind: 'observation', state: 'running', nativeStatus, results: [] };
}
