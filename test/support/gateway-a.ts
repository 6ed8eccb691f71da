import type { ServerResponse } from 'node:http';
import { canaryKey } from './cli.ts';
import { fakeMp4, type Answer, type Seen } from './gateway-c.ts';
import { json, listen, play, type Origin } from './origin.ts';

/** A gateway that speaks Protocol A by the specification (2.1, 2.2, 3.1, 4.1, 5), and can be told otherwise. */
export interface GatewayA extends Origin {
  /** How many operations were created. */
  created: number;
  posts(): Seen[];
  /** Answers of the next submissions; then it goes on as usual. */
  submits: Answer[];
  /** Answers of the next queries. */
  queries: Answer[];
  /** Polls that show `done: false` before the operation is done. */
  polls: number;
  /** The members of a finished operation next to `name` and `done`; by default the samples as addresses. */
  finish: (samples: number) => object;
  /** The file of each sample. */
  videos: Buffer[];
}

const submission = /^\/v1beta\/models\/([^/:]+):predictLongRunning$/;
const operation = /^\/v1beta\/(models\/[^/]+\/operations\/[^/]+)$/;

/** `response` of an operation that is done, as the specification shapes it (2.2). */
export function generated(videos: object[], more: object = {}): object {
  const generatedSamples = videos.map((video) => ({ video }));
  return { response: { generateVideoResponse: { generatedSamples, ...more } } };
}

/** Starts the gateway on loopback. */
export async function startGatewayA(): Promise<GatewayA> {
  const tasks = new Map<string, { polls: number; samples: number }>();
  const handle = (seen: Seen, response: ServerResponse): void => {
    const scripted = (seen.method === 'POST' ? gateway.submits : queriesFor(seen)).shift();
    if (scripted !== undefined) {
      play(scripted, seen, response);
      return;
    }
    if (seen.headers.authorization !== `Bearer ${canaryKey}`) {
      json(response, { error: { code: 401, message: 'no valid key', status: 'UNAUTHENTICATED' } }, 401);
      return;
    }
    const [, model] = submission.exec(seen.path) ?? [];
    if (seen.method === 'POST' && model !== undefined) {
      submit(seen, decodeURIComponent(model), response);
      return;
    }
    const [, name = ''] = operation.exec(seen.path) ?? [];
    const file = /^\/files\/(\d)$/.exec(seen.path)?.[1];
    if (seen.method === 'GET' && tasks.has(name)) {
      json(response, poll(name));
      return;
    }
    if (seen.method === 'GET' && file !== undefined) {
      serve(gateway.videos[Number(file)], response);
      return;
    }
    json(response, { error: { code: 404, message: 'no such path', status: 'NOT_FOUND' } }, 404);
  };
  const queriesFor = (seen: Seen): Answer[] => (operation.test(seen.path) ? gateway.queries : []);
  const submit = (seen: Seen, model: string, response: ServerResponse): void => {
    const body = JSON.parse(seen.body) as { instances?: unknown[]; parameters?: { sampleCount?: number } };
    const stray = Object.keys(body).find((member) => member !== 'instances' && member !== 'parameters');
    if (stray !== undefined || !Array.isArray(body.instances)) {
      json(response, { error: { code: 400, message: `bad ${stray ?? 'instances'}` } }, 400);
      return;
    }
    gateway.created += 1;
    const name = `models/${model}/operations/op-${gateway.created}`;
    tasks.set(name, { polls: 0, samples: body.parameters?.sampleCount ?? 1 });
    json(response, { name, done: false });
  };
  const poll = (name: string): object => {
    const task = tasks.get(name) ?? { polls: 0, samples: 1 };
    task.polls += 1;
    return task.polls > gateway.polls
      ? { name, done: true, ...gateway.finish(task.samples) }
      : { name, done: false };
  };
  const origin = await listen(handle);
  const gateway: GatewayA = {
    ...origin,
    created: 0,
    posts: () => gateway.requests.filter(({ method }) => method === 'POST'),
    submits: [],
    queries: [],
    polls: 1,
    videos: [fakeMp4(5000), fakeMp4(6000), fakeMp4(7000)],
    finish: (samples) =>
      generated(
        Array.from({ length: samples }, (_, index) => ({
          uri: `${gateway.url}/files/${index}`,
          encoding: 'video/mp4',
        })),
      ),
  };
  return gateway;
}

function serve(video: Buffer | undefined, response: ServerResponse): void {
  if (video === undefined) {
    json(response, { error: { code: 404, message: 'no such file' } }, 404);
    return;
  }
  response.writeHead(200, { 'content-type': 'video/mp4', 'content-length': video.length });
  response.end(video);
}
