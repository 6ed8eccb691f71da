import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** The parts of a mirror's responses that can contain its text. All other parts are valid. */
export const reflections = ['refusals', 'handles', 'states', 'results', 'listings'] as const;
export type Reflection = (typeof reflections)[number];

/**
 * A gateway that returns a given text in every text field, and a second origin to which the gateway redirects clients.
 */
export interface Mirror {
  url: string;
  /** The request lines and headers that the second origin received. */
  stranger: string[];
  close(): Promise<void>;
}

/** The text that a mirror returns, and the part of its responses that contains this text. */
export interface Words {
  reflection: Reflection;
  /** The HTTP status with which the mirror refuses requests. */
  status?: number;
  /** Returns the text for ids, codes and headers, given the received key. `text` does so for messages. */
  word: (key: string) => string;
  text: (key: string) => string;
  /** Members that the mirror adds to every object that it sends. */
  more?: object;
}

/** Starts a mirror. */
export async function startMirror(words: Words): Promise<Mirror> {
  const stranger: string[] = [];
  const other = await listen((request, response) => {
    stranger.push(`${request.method ?? ''} ${request.url ?? ''} ${JSON.stringify(request.rawHeaders)}`);
    response.writeHead(404).end();
  });
  const main = await listen((request, response) => {
    const key = keyIn(request);
    const forms = { word: words.word(key), text: words.text(key) };
    answer({ request, response, ...forms, words, strangerUrl: `http://localhost:${other.port}/` });
  });
  const close = async (): Promise<void> => {
    await Promise.all([main.close(), other.close()]);
  };
  return { url: `http://127.0.0.1:${main.port}`, stranger, close };
}

interface Call {
  request: IncomingMessage;
  response: ServerResponse;
  word: string;
  text: string;
  words: Words;
  strangerUrl: string;
}

function keyIn({ headers }: IncomingMessage): string {
  return (headers.authorization ?? String(headers['x-api-key'] ?? '')).replace(/^Bearer /, '');
}

function answer(call: Call): void {
  const { request, words } = call;
  const isPoll = request.method === 'GET' || request.headers['x-tc-action'] === 'DescribeTaskDetail';
  if (words.reflection === 'refusals') send(call, words.status ?? 400, refusal(call));
  else if (request.url?.startsWith('/v1/models')) send(call, 200, listing(call));
  else send(call, 200, isPoll ? polled(call) : accepted(call));
}

function refusal({ word, text, words }: Call): object {
  const error = { message: text, code: word, type: word, status: word, param: word, ...words.more };
  return { error, message: text, request_id: word, Response: { Error: { Code: word, Message: text } } };
}

function listing({ word, text, words }: Call): object {
  const id = words.reflection === 'listings' ? word : 'vendor-h3-mini';
  const models = [{ id, model_versions: [id, text], owned_by: text, supported_protocols: [text] }];
  return { data: models.map((model) => ({ ...model, ...words.more })) };
}

function accepted({ word, words }: Call): object {
  const id = words.reflection === 'handles' ? `task-${word}` : 'task-1';
  const name = `models/video-a/operations/${id}`;
  const response = { TaskId: id, RequestId: id, ...words.more };
  return { task_id: id, id, status: 'queued', name, done: false, Response: response };
}

function polled(call: Call): object {
  const { word, text, words, strangerUrl } = call;
  const hasResult = words.reflection === 'results';
  const status = words.reflection === 'states' ? word : hasResult ? 'completed' : 'queued';
  const uri = `${strangerUrl}clip.mp4?key=${encodeURI(word)}`;
  const task = { Status: hasResult ? 'FINISH' : status, ErrCode: 0, ErrCodeExt: '', Message: text };
  const output = { Output: { FileInfos: [{ FileUrl: uri }] }, ...words.more };
  const samples = { generatedSamples: [{ video: { uri } }] };
  return {
    ...{ status, url: uri, video_url: uri, done: hasResult },
    ...(hasResult && { response: { generateVideoResponse: samples } }),
    Response: { Status: task.Status, AigcVideoTask: { ...task, ...(hasResult && output) } },
  };
}

// A header cannot contain control characters except those in the upper half of Latin-1.
function send({ response, word, words }: Call, status: number, body: object): void {
  const value = word.replace(/[^\t\x20-\x7e\x80-\xff]/g, '');
  response.writeHead(status, {
    'content-type': 'application/json',
    'x-oneapi-request-id': value,
    'x-request-id': value,
    'x-tt-logid': value,
    'set-cookie': `session=${value}`,
    'www-authenticate': `Bearer realm="${value}"`,
    'content-disposition': `attachment; filename="../${value}.mp4"`,
  });
  response.end(JSON.stringify({ ...body, ...words.more }));
}

async function listen(
  handle: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<{ port: number; close: () => Promise<void> }> {
  const server = createServer((request, response) => {
    request.resume().on('end', () => handle(request, response));
  });
  await new Promise<void>((resolve) => server.listen(0, resolve));
  const close = (): Promise<void> =>
    new Promise((resolve) => {
      server.closeAllConnections();
      server.close(() => resolve());
    });
  return { port: (server.address() as AddressInfo).port, close };
}
