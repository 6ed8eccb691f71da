import { describe, expect, it } from 'vitest';
import { parseBaseUrl, parseOrigin } from '../../src/config/base-url.ts';
import { checkKey, keyOfFile } from '../../src/config/key.ts';
import { checkConfig } from '../../src/config/schema.ts';
import { parseDuration } from '../../src/clock.ts';
import type { Reply } from '../../src/exchange.ts';
import { isTextType, mimeOf } from '../../src/media/mp4.ts';
import { readContentRange, strongValidator } from '../../src/http/download/validator.ts';
import { readFailure, requestIdOf, isMarkup, markupText, retryAfter } from '../../src/http/failures.ts';
import { MemberWatch } from '../../src/media/media-spool.ts';
import { checkTarget } from '../../src/http/download/follow.ts';
import { canonicalJson, parseBodyJson, parseCutJson, tryParseJson, type Json } from '../../src/json.ts';
import { decodeEvents } from '../../src/ledger/event-log.ts';
import { printable, printableLine } from '../../src/printable.ts';
import { readModels } from '../../src/protocols/models.ts';
import { protocols } from '../../src/protocols/registry.ts';
import { judgeFailedSubmission } from '../../src/protocols/verdicts.ts';
import { redactor, secretRedactor } from '../../src/redact.ts';
import { ResponseStream } from '../../src/responses/respond.ts';
import { readResponse } from '../../src/responses/wire.ts';
import { jsonDocument } from '../../src/cli/output/outcome.ts';
import { table } from '../../src/cli/output/table.ts';
import { speechFailure, speechHttpFailure, readFrame } from '../../src/speech/wire.ts';
import { FrameSplitter } from '../../src/speech/json-frames.ts';
import { costOf, fill, growsWithText, type Unit } from './growth.ts';

const pumps = [
  ...['(request id: ', '(', '{', '[', '{"a":', '"', '\\', '\\u0026', '&amp;', '%25', '<', '<!--', '<script>'],
  ...[' ', '\n', 'a', '0', '-', '.', '/', '../', ':', '?sig=', 'data: ', 'data:\n\n', '\0', 'task_'],
  ...[
    'task_id:a1234567',
    'model ',
    'not ',
    'sk-a*',
    '\u001b[',
    '\ud800',
    '中',
    'models/',
    '12345678901234567,',
  ],
];
const units: Unit[] = pumps.flatMap((pump) => [{ pump }, { head: '{"a":"', pump, tail: '\u0001' }]);

const reply = (status: number, text: string, headers: Record<string, string> = {}): Reply => ({
  status,
  headers,
  text,
  complete: true,
});

const json = (status: number, body: Json): Reply => reply(status, JSON.stringify(body));

const bytesOf = (text: string): Buffer => Buffer.from(text);

const hide = secretRedactor(['sk-abcdefghijklmnopqrstuvwxyz']);
const hideMore = redactor(['sk-abcdefghijklmnopqrstuvwxyz']);

const readers: Record<string, (text: string) => unknown> = {
  'an error body': (text) => readFailure(reply(502, text)),
  'the message of an error': (text) =>
    readFailure(json(400, { error: { message: text, code: text, type: text } })),
  'a message of Protocol B': (text) =>
    protocols.b.readSubmission(json(200, { Response: { Error: { Code: text, Message: text } } }), {}),
  'a refusal of a submission': (text) => [
    judgeFailedSubmission(reply(429, text), { prompt: text }),
    judgeFailedSubmission(json(429, { message: text, task_id: text }), { prompt: text }),
    judgeFailedSubmission(json(429, { message: text }), { prompt: `${text} ` }),
  ],
  'headers of an error': (text) =>
    readFailure(reply(429, '', { 'retry-after': text, 'retry-after-ms': text, 'x-request-id': text })),
  'an id of a call': (text) => requestIdOf(json(200, { message: text })),
  "Google's retry info": (text) => retryAfter({}, { error: { details: [{ retryDelay: text }] } }),
  markup: (text) => [isMarkup(text), markupText(text)],
  JSON: (text) => [tryParseJson(text), parseCutJson(text)],
  'JSON of a user': (text) => {
    canonicalJson(parseBodyJson(JSON.stringify({ [text]: text })));
    parseBodyJson(text);
  },
  'secrets in a text': (text) => hide(text),
  'secrets in shown text': (text) => hideMore(text),
  'text for a terminal': (text) => [printable(text, text.length * 2), printableLine(text, text.length * 2)],
  'a document of --json': (text) => jsonDocument({ json: { text } }, {}),
  'a table': (text) => table(['a'], [[text]]),
  'the address of a result': (text) =>
    void checkTarget(text, { baseUrl: new URL('https://gateway.example'), trustedOrigins: [] }).catch(
      () => undefined,
    ),
  'a content type': (text) => [isTextType(text), mimeOf(false, text)],
  'a content range and an ETag': (text) => [readContentRange(text), strongValidator({ etag: text })],
  'members of a streamed body': (text) => {
    const watch = new MemberWatch(['encodedVideo']);
    for (const byte of bytesOf(text)) watch.step(byte);
  },
  'a listing': (text) =>
    readModels(json(200, { data: [{ id: text, model_versions: [text], owned_by: text, protocol: text }] })),
  'a stream of frames': (text) => {
    const splitter = new FrameSplitter();
    for (let at = 0; at < text.length; at += 16_384) splitter.push(bytesOf(text.slice(at, at + 16_384)));
    splitter.end();
  },
  'a frame': (text) => [
    readFrame(bytesOf(text)),
    readFrame(bytesOf(JSON.stringify({ code: 0, data: text }))),
  ],
  'an error of speech': (text) => [
    speechFailure(text, text),
    speechHttpFailure(reply(400, text, { 'x-api-message': text })),
  ],
  'a stream of events': (text) => {
    const stream = new ResponseStream(() => undefined);
    for (let at = 0; at < text.length; at += 16_384) stream.push(bytesOf(text.slice(at, at + 16_384)));
    stream.finish();
  },
  'a response': (text) =>
    readResponse({
      status: text,
      error: { message: text },
      output: [{ type: 'message', content: [{ type: 'output_text', text }] }],
    }),
  'a record of the ledger': (text) => decodeEvents(text),
  'a base URL': (text) => parseBaseUrl(`https://gateway.example/${text}`, false),
  'an origin': (text) => parseOrigin(`https://${text}`, false),
  'a key': (text) => checkKey(keyOfFile(text)),
  'a duration': (text) => parseDuration(text),
  'a config': (text) =>
    checkConfig({ profile: text, profiles: { [text]: { base_url: text, [text]: text } } }),
};

for (const [name, protocol] of Object.entries(protocols)) {
  readers[`answers of ${name}`] = (text) => {
    protocol.readSubmission(reply(200, text), {});
    protocol.readQuery(reply(200, text), 't');
    protocol.notReady(reply(404, text));
  };
  readers[`members of answers of ${name}`] = (text) => {
    for (const body of bodiesOf(text.slice(0, text.length / 16))) {
      protocol.readSubmission(json(200, body), {});
      protocol.readQuery(json(200, body), 't');
    }
  };
  readers[`a handle of ${name}`] = (text) => protocol.query(text, text);
}

function bodiesOf(text: string): Json[] {
  const Task = { TaskId: text, Status: text, ErrCode: 7, ErrCodeExt: text, Message: text };
  const files = {
    ...Task,
    Status: 'FINISH',
    ErrCode: 0,
    ErrCodeExt: '',
    Output: { FileInfos: [{ FileUrl: text, FileType: text }] },
  };
  const video = { generateVideoResponse: { generatedSamples: [{ video: { uri: text, encoding: text } }] } };
  return [
    {
      id: text,
      task_id: text,
      status: text,
      progress: text,
      fail_reason: text,
      url: text,
      message: text,
      code: text,
    },
    {
      code: 'success',
      data: { task_id: text, status: 'SUCCESS', progress: text, result_url: text, fail_reason: text },
    },
    { Response: { TaskId: text, Status: text, AigcVideoTask: Task } },
    { Response: { AigcVideoTask: files } },
    { name: text, done: true, error: { code: 3, message: text } },
    { name: text, done: true, response: video },
  ];
}

describe('hostile text', () => {
  it.each(Object.keys(readers))('is read in linear time if it is %s', (name) => {
    const read = (text: string): void => {
      try {
        readers[name]?.(text);
      } catch (error) {
        // A refusal is allowed, but a stack overflow is a bug.
        if (error instanceof Error && error.message.includes('call stack')) throw error;
      }
    };
    // Quadratic work takes longer than 25 ms for 16 Ki code units. Shorter times need no exact measurement.
    const isFast = (unit: Unit): boolean => costOf(() => read(fill(unit, 16 * 1024)), 1) < 25;
    const slow = units.filter((unit) => !isFast(unit) && !growsWithText(read, unit, 4 * 1024, 16 * 1024));
    expect(slow).toEqual([]);
  });
});
