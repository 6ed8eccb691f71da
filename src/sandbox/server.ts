import { randomBytes, randomInt } from 'node:crypto';
import { join } from 'node:path';
import { authenticate, defaultKey, issueKeys } from './auth.ts';
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
import { type Model, allModels, pricesOf } from './models.ts';

const endpointTypes: Readonly<Record<Model['area'], string[]>> = {
  a: ['gemini-video'],
  b: ['cloud-action-video'],
  c: ['openai-video'],
  tts: ['speech'],
  responses: ['openai-response'],
};

const listRoute = { method: 'GET', area: 'models', kind: 'list', auth: 'bearer' } as const;

/** The routes for the model list, `GET /v1/models` (specification 2.7, 4.5), and for a single model by its id. */
const modelRoutes: readonly Route[] = [
  { ...listRoute, pattern: /^\/v1\/models$/, handle: listModels },
  { ...listRoute, pattern: /^\/v1\/models\/([^/]+)$/, handle: showModel },
];

function listModels(call: Call): Reply {
  const models = allModels.filter(({ id }) => call.mayUse(id));
  return json(200, { success: true, object: 'list', data: models.map((model) => modelEntry(call, model)) });
}

/** Responds to an unknown id with HTTP 200 and an error in the body, as real gateways do. */
function showModel(call: Call, id: string): Reply {
  const model = allModels.find((candidate) => candidate.id === id && call.mayUse(id));
  if (model) return json(200, modelEntry(call, model));
  const message = `The model '${id}' does not exist`;
  const error = { message, type: 'invalid_request_error', param: 'model', code: 'model_not_found' };
  return json(200, { error });
}

function modelEntry(call: Call, { id, area, versions }: Model): object {
  return {
    id,
    object: 'model',
    created: 1_626_777_600,
    owned_by: 'sandbox',
    protocols: [area],
    supported_endpoint_types: endpointTypes[area],
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
  /** Makes task ids and random faults repeatable if the state folder is empty and the calls are the same. */
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
  /** Closes every connection and both ports. Tasks continue, because they are in the state folder. */
  close(): Promise<void>;
}

/** Every endpoint of the gateway's own origin, in the order in which they are matched. */
const gatewayRoutes: readonly Route[] = [
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
  const takeFault: Gateway['takeFault'] = (name, canApply) => useFault(stateDir, faults, name, canApply);
  const pickRandomFault = randomFaultPicker(faults, takeFault, seed);
  const addresses = { url: '', fileUrl: '' };
  const gateway: Gateway = {
    ...{ stateDir, now, paceMs, seed, limits, voices, takeFault, pickRandomFault, ...addresses },
    streams: { open: 0 },
    redact: options.redact ?? ((text) => text),
  };
  const { unref } = options;
  const fileListener = await listenForFiles(gateway, unref);
  gateway.fileUrl = fileListener.origin;
  const handle = (request: Request): Promise<Reply> =>
    request.path.startsWith(`${storePath}/`)
      ? answerStore(gateway, request)
      : answer(gateway, gatewayRoutes, request);
  const mainListener = await listen(port, handle, { unref }).catch(async (error: unknown) => {
    await fileListener.close();
    throw error;
  });
  gateway.url = mainListener.origin;
  const close = async (): Promise<void> => {
    await Promise.all([mainListener.close(), fileListener.close()]);
  };
  const store = { AWS_ENDPOINT_URL_S3: `${mainListener.origin}${storePath}`, ...storeAccount };
  return { url: mainListener.origin, key: defaultKey, fileUrl: fileListener.origin, store, close };
}

/**
 * Starts the file host on its first port, so that file URLs survive a restart. If that port is in use, for example by
 * another sandbox with the same state folder, the host chooses a free port.
 */
async function listenForFiles(gateway: Gateway, unref: boolean | undefined): Promise<Listener> {
  const handle = (request: Request): Promise<Reply> => answer(gateway, fileHost, request);
  const path = join(gateway.stateDir, 'file-port');
  const previousPort = Number(readWhole(path) ?? 0);
  const fileListener = await listen(previousPort, handle, { unref }).catch(() =>
    listen(0, handle, { unref }),
  );
  if (previousPort === 0) writeOnce(path, new URL(fileListener.origin).port);
  return fileListener;
}

/**
 * Returns the function that chooses random faults. For `chaosxN`, it chooses at most N faults, regardless of the
 * number of calls.
 */
function randomFaultPicker(
  faults: readonly Fault[],
  takeFault: Gateway['takeFault'],
  seed: number | undefined,
): Gateway['pickRandomFault'] {
  const chaosFault = faults.find(({ name }) => name === 'chaos');
  if (chaosFault === undefined) return () => undefined;
  const chaos = startChaos(seed ?? randomInt(2 ** 31));
  return (call) => {
    const hit = chaos(call, chaosFault.percent);
    return hit && takeFault('chaos') && hit;
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
  const routeMethod = method === 'HEAD' ? 'GET' : method;
  const matchingRoute = routes.find(
    (candidate) => candidate.method === routeMethod && candidate.pattern.test(path),
  );
  const body = await readBody(message);
  if (matchingRoute === undefined) return unknownPath(method, path);
  const caller = authenticate(gateway.stateDir, matchingRoute.auth, message.headers);
  if (caller === undefined) return invalidKey(requestId);
  const query = new URLSearchParams(request.query);
  const call: Call = { method, path, query, headers: message.headers, body, requestId, gateway, ...caller };
  // A badly encoded part remains unchanged, because no task has such a name.
  const groups = (matchingRoute.pattern.exec(path)?.slice(1) ?? []).map(decode);
  return withFaults(call, matchingRoute, async (faultyCall) => matchingRoute.handle(faultyCall, ...groups));
}

function refusal(error: unknown): Reply {
  if (error instanceof RefusedCall) return error.reply;
  throw error;
}
