import { randomBytes, randomInt } from 'node:crypto';
import { join } from 'node:path';
import { authenticate, DEFAULT_KEY, issueKeys } from './auth.ts';
import { readBody } from './body.ts';
import { type Fault, parseFaults, startChaos, useFault } from './faults.ts';
import {
  invalidKey,
  unknownPath,
  type Call,
  type Gateway,
  RefusedCall,
  type Reply,
  type Route,
  type Limits,
  json,
} from './exchange.ts';
import { withFaults } from './fault-effects.ts';
import { fileHost, protocolB } from './routes/b.ts';
import { listen, type Request, type Listener } from './listener.ts';
import { protocolA } from './routes/a.ts';
import { protocolC } from './routes/c.ts';
import { responsesRoutes } from './routes/responses.ts';
import { speechRoutes, voicesOf } from './routes/speech.ts';
import { makeFolder, readWhole, writeOnce } from './state.ts';
import { answerStore, storePath } from './store/service.ts';
import { decode, storeAccount } from './store/signature.ts';
import { type Model, MODELS, pricesOf } from './models.ts';

const ENDPOINT_TYPES: Readonly<Record<Model['area'], string[]>> = {
  a: ['gemini-video'],
  b: ['cloud-action-video'],
  c: ['openai-video'],
  tts: ['speech'],
  responses: ['openai-response'],
};

const LIST = { method: 'GET', area: 'models', kind: 'list', auth: 'bearer' } as const;

/** The routes for the model list, `GET /v1/models` (specification 2.7, 4.5), and for a single model by its id. */
const modelRoutes: readonly Route[] = [
  { ...LIST, pattern: /^\/v1\/models$/, handle: listAll },
  { ...LIST, pattern: /^\/v1\/models\/([^/]+)$/, handle: showOne },
];

function listAll(call: Call): Reply {
  const models = MODELS.filter(({ id }) => call.mayUse(id));
  return json(200, { success: true, object: 'list', data: models.map((model) => entryOf(call, model)) });
}

/** Responds to an unknown id with HTTP 200 and an error in the body, as real gateways do. */
function showOne(call: Call, id: string): Reply {
  const model = MODELS.find((candidate) => candidate.id === id && call.mayUse(id));
  if (model) return json(200, entryOf(call, model));
  const message = `The model '${id}' does not exist`;
  const error = { message, type: 'invalid_request_error', param: 'model', code: 'model_not_found' };
  return json(200, { error });
}

function entryOf(call: Call, { id, area, versions }: Model): object {
  return {
    id,
    object: 'model',
    created: 1_626_777_600,
    owned_by: 'sandbox',
    protocols: [area],
    supported_endpoint_types: ENDPOINT_TYPES[area],
    ...(versions && { model_versions: versions }),
    ...(area === 'tts' && { voices: voicesOf(call) }),
    prices: pricesOf(area, id).map((price) => ({
      unit: price.unit,
      price: price.price,
      resolution: price.resolution,
      default_seconds: price.defaultSeconds,
      reference_image: price.referenceImage,
      free_reference_images: price.freeReferenceImages,
      minimum: price.minimum,
    })),
  };
}

/** The options of {@link startSandbox}. */
export interface SandboxOptions {
  /** The folder for tasks, the bill and the journal. Several sandboxes can share it at the same time. */
  stateDir: string;
  /** The port; 0, the default, chooses a free port. */
  port?: number;
  /** The address to listen on: always loopback. */
  host?: '127.0.0.1';
  /** The duration of one generation, in milliseconds. Default: 3000. A change does not affect existing tasks. */
  paceMs?: number;
  /** Keys in addition to the default key: `KEY`, or `KEY=MODEL,MODEL` for these models only. */
  keys?: readonly string[];
  /** Voices in addition to the sandbox's own voices. */
  voices?: readonly string[];
  /** The account's limits. Default: none. */
  limits?: Limits;
  /** The faults to simulate, in the syntax of {@link parseFaults}. */
  faults?: string[];
  /** Makes task ids and random faults repeatable if the state directory is empty and the calls are the same. */
  seed?: number;
  /** Removes the real key from stored tasks. */
  redact?: (text: string) => string;
  /** Whether the process may exit while the sandbox is listening. */
  unref?: boolean;
  /** Returns the time in milliseconds since 1970. Tests replace this function. */
  now?: () => number;
}

/** A sandbox gateway that is listening. */
export interface Sandbox {
  /** The base URL, `http://127.0.0.1:PORT`. */
  url: string;
  /** A key that the sandbox accepts. */
  key: string;
  /** The separate origin that serves Protocol B's files, and must never receive a key. */
  fileUrl: string;
  /** The AWS variables for the sandbox's object storage. */
  store: Readonly<Record<string, string>>;
  /** Closes every connection and both ports. Tasks continue, because they are in the state directory. */
  close(): Promise<void>;
}

/** Every endpoint of the gateway's own origin, in the order in which they are matched. */
const ROUTES: readonly Route[] = [
  ...protocolA,
  ...protocolB,
  ...protocolC,
  ...modelRoutes,
  ...responsesRoutes,
  ...speechRoutes,
];

/**
 * Starts a simulated gateway on loopback (design 9). It creates real media, validates requests like a real gateway, and
 * records a bill in `stateDir` (created with mode 0700). Rejects with FaultSyntaxError, KeySyntaxError, or the system's
 * error if the port or the folder is not available.
 */
export async function startSandbox(options: SandboxOptions): Promise<Sandbox> {
  const { stateDir, paceMs = 3000, seed, now = Date.now, port = 0, limits = {}, voices = [] } = options;
  const faults = parseFaults(options.faults ?? []);
  makeFolder(stateDir);
  issueKeys(stateDir, options.keys ?? []);
  const take: Gateway['take'] = (name, fits) => useFault(stateDir, faults, name, fits);
  const chance = chanceOf(faults, take, seed);
  const addresses = { url: '', fileUrl: '' };
  const gateway: Gateway = {
    ...{ stateDir, now, paceMs, seed, limits, voices, take, chance, ...addresses },
    streams: { open: 0 },
    redact: options.redact ?? ((text) => text),
  };
  const { unref } = options;
  const files = await listenForFiles(gateway, unref);
  gateway.fileUrl = files.origin;
  const handle = (request: Request): Promise<Reply> =>
    request.path.startsWith(`${storePath}/`)
      ? answerStore(gateway, request)
      : answer(gateway, ROUTES, request);
  const main = await listen(port, handle, { unref }).catch(async (error: unknown) => {
    await files.close();
    throw error;
  });
  gateway.url = main.origin;
  const close = async (): Promise<void> => {
    await Promise.all([main.close(), files.close()]);
  };
  const store = { AWS_ENDPOINT_URL_S3: `${main.origin}${storePath}`, ...storeAccount };
  return { url: main.origin, key: DEFAULT_KEY, fileUrl: files.origin, store, close };
}

/**
 * Starts the file host on its first port, so that file URLs survive a restart. If that port is in use, for example by
 * another sandbox with the same state directory, the host chooses a free port.
 */
async function listenForFiles(gateway: Gateway, unref: boolean | undefined): Promise<Listener> {
  const handle = (request: Request): Promise<Reply> => answer(gateway, fileHost, request);
  const path = join(gateway.stateDir, 'file-port');
  const kept = Number(readWhole(path) ?? 0);
  const files = await listen(kept, handle, { unref }).catch(() => listen(0, handle, { unref }));
  if (kept === 0) writeOnce(path, new URL(files.origin).port);
  return files;
}

/**
 * Returns the function that chooses random faults. For `chaosxN`, it chooses at most N faults, regardless of the
 * number of calls.
 */
function chanceOf(
  faults: readonly Fault[],
  take: Gateway['take'],
  seed: number | undefined,
): Gateway['chance'] {
  const wanted = faults.find(({ name }) => name === 'chaos');
  if (wanted === undefined) return () => undefined;
  const chaos = startChaos(seed ?? randomInt(2 ** 31));
  return (call) => {
    const hit = chaos(call, wanted.percent);
    return hit && take('chaos') && hit;
  };
}

/**
 * Responds to a request with the first route that matches its method and path: checks the key, applies faults, and runs
 * the handler. `HEAD` uses the `GET` route. Every response has `X-Oneapi-Request-Id`.
 */
export async function answer(gateway: Gateway, routes: readonly Route[], request: Request): Promise<Reply> {
  const requestId = randomBytes(12).toString('hex');
  const reply = await route(gateway, routes, request, requestId).catch(refusal);
  return { ...reply, headers: { ...reply.headers, 'X-Oneapi-Request-Id': requestId } };
}

async function route(
  gateway: Gateway,
  routes: readonly Route[],
  request: Request,
  requestId: string,
): Promise<Reply> {
  const { method, path, message } = request;
  const found = routes.find(
    (candidate) => candidate.method === wanted(method) && candidate.pattern.test(path),
  );
  const body = await readBody(message);
  if (found === undefined) return unknownPath(method, path);
  const caller = authenticate(gateway.stateDir, found.auth, message.headers);
  if (caller === undefined) return invalidKey(requestId);
  const query = new URLSearchParams(request.query);
  const call: Call = { method, path, query, headers: message.headers, body, requestId, gateway, ...caller };
  return withFaults(call, found, async (faring) => found.handle(faring, ...groups(found.pattern, path)));
}

function wanted(method: string): string {
  return method === 'HEAD' ? 'GET' : method;
}

// A badly encoded part remains unchanged, because no task has such a name.
function groups(pattern: RegExp, path: string): string[] {
  return (pattern.exec(path)?.slice(1) ?? []).map(decode);
}

function refusal(error: unknown): Reply {
  if (error instanceof RefusedCall) return error.reply;
  throw error;
}
