import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Settings } from '../../src/config/resolve.ts';
import type { Exchange, Reply } from '../../src/exchange.ts';
import {
  fetchModels,
  listedModels,
  oneListing,
  recallModels,
  rememberModels,
} from '../../src/flows/models.ts';
import { isKnownToServe, protocolOfModel, refuseOtherProtocol } from '../../src/flows/model-protocol.ts';
import type { CallOptions, GatewayClient } from '../../src/http/client.ts';
import { TransportError } from '../../src/http/transport-error.ts';
import { protocols } from '../../src/protocols/registry.ts';
import { freshFolder } from '../support/servers.ts';
import { sessionIn } from './flow-deps.ts';

const listing = {
  data: [
    { id: 'veo-3', protocol: 'a' },
    { id: 'vendor-h4', protocol: 'c' },
  ],
};
const says = (body: object, status = 200, headers: Record<string, string> = {}): Reply => ({
  ...{ status, headers, text: JSON.stringify(body), complete: true },
});

interface Scene extends ReturnType<typeof sessionIn> {
  calls: CallOptions[];
  paths: string[];
}

/** Returns a session whose gateway sends the given responses, and then repeats the last response. */
function scene(
  answers: (Reply | TransportError)[],
  env: NodeJS.ProcessEnv = {},
  state = freshFolder(),
  more: Partial<Settings> = {},
): Scene {
  const [calls, paths] = [[] as CallOptions[], [] as string[]];
  const client = {
    exchange: ({ path }: Exchange, options: CallOptions) => {
      calls.push(options);
      paths.push(path);
      const answer = answers.length > 1 ? answers.shift() : answers[0];
      return answer instanceof TransportError ? Promise.reject(answer) : Promise.resolve(answer);
    },
  } as unknown as GatewayClient;
  const session = sessionIn(state, env, { client: () => Promise.resolve(client) });
  const settings = async (): Promise<Settings> => ({ ...(await session.settings()), ...more });
  return { ...session, settings, calls, paths };
}

const unsent = (reason: TransportError['reason']): TransportError =>
  new TransportError('unsent', reason, 'no connection');

describe("an API key's models", () => {
  it("are requested within the settings' and the caller's timeouts, and are cached", async () => {
    const requestTimeoutMs = { value: 60_000, source: 'flag' } as const;
    const own = scene([says(listing)], {}, freshFolder(), { requestTimeoutMs });
    const models = await fetchModels(own, undefined, { timeoutMs: 7 });
    expect(models.map(({ id }) => id)).toEqual(['veo-3', 'vendor-h4']);
    expect(own.calls).toMatchObject([{ timeoutMs: 7 }]);
    expect(recallModels(await own.settings())).toMatchObject([
      { id: 'veo-3', protocols: ['a'] },
      { id: 'vendor-h4' },
    ]);
    const one = scene([says(listing)], {}, freshFolder(), { requestTimeoutMs });
    await fetchModels(one, 'veo-3');
    expect(one.calls).toMatchObject([{ timeoutMs: 60_000 }]);
    expect([own.paths, one.paths]).toEqual([['/v1/models'], ['/v1/models/veo-3']]);
    expect(recallModels(await one.settings())).toEqual([]);
  });

  it('are requested again after a failure, up to a limit', async () => {
    const own = scene([says({}, 503), unsent('unreachable'), says(listing)]);
    expect(await fetchModels(own)).toHaveLength(2);
    expect([own.calls.length, own.notes.length]).toEqual([3, 2]);
    const unreachable = scene([unsent('unreachable')]);
    await expect(fetchModels(unreachable)).rejects.toMatchObject({ exitCode: 6, retry: 'safe' });
    expect(unreachable.calls).toHaveLength(3);
    const retries = { value: 3, source: 'flag' } as const;
    const patient = scene([unsent('unreachable')], {}, freshFolder(), { retries });
    await expect(fetchModels(patient)).rejects.toMatchObject({ exitCode: 6 });
    expect(patient.calls).toHaveLength(4);
    const limited = scene([says({}, 503)]);
    await expect(fetchModels(limited, undefined, { retries: 1 })).rejects.toMatchObject({ exitCode: 6 });
    expect(limited.calls).toHaveLength(2);
  });

  it('are fetched page by page', async () => {
    const own = scene([
      says({ data: [{ id: 'one' }], has_more: true, last_id: 'one' }),
      says({ data: [{ id: 'two' }], has_more: true, last_id: 'two' }),
      says({ data: [{ id: 'three' }], has_more: false, last_id: 'three' }),
    ]);
    expect((await fetchModels(own)).map(({ id }) => id)).toEqual(['one', 'two', 'three']);
    expect(own.paths).toEqual(['/v1/models', '/v1/models?after_id=one', '/v1/models?after_id=two']);
    expect(recallModels(await own.settings())).toHaveLength(3);
    expect(own.notes).toEqual([]);
    expect((await fetchModels(scene([says(listing)]))).isIncomplete).toBeUndefined();
  });

  it.each<[string, (Reply | TransportError)[], string]>([
    ['repeats a page', [], '.'],
    [
      'refuses the next page',
      [says({ error: { message: 'no such parameter' } }, 400)],
      '. no such parameter.',
    ],
  ])('are listed with a note if the gateway %s', async (_, others, reason) => {
    const own = scene([says({ models: [{ name: 'models/m' }], nextPageToken: "a'b" }), ...others]);
    const models = await fetchModels(own);
    expect([models.map(({ id }) => id), models.isIncomplete]).toEqual([['m'], true]);
    expect(own.calls).toHaveLength(2);
    expect(own.notes).toEqual([
      `The model list is incomplete${reason} To see the next page: mgw api GET '/v1/models?pageToken=a%27b'`,
    ]);
  });

  it('are read up to 100 pages, 16 MiB, or the timeout', async () => {
    const page = (_: unknown, index: number): Reply =>
      says({ data: [{ id: `m${index}` }], next: `https://elsewhere.example/x?page=${index}` });
    const own = scene(Array.from({ length: 200 }, page));
    expect(await fetchModels(own)).toHaveLength(100);
    expect([own.paths[1], own.notes.length]).toEqual(['/v1/models?page=0', 1]);
    const text = page(0, 0).text.padEnd(16 * 1024 * 1024);
    const long = scene([{ ...says({}), text }, page(0, 1), page(0, 2)]);
    expect(await fetchModels(long)).toHaveLength(2);
    const late = scene(Array.from({ length: 200 }, page));
    expect(await fetchModels(late, undefined, { timeoutMs: 0 })).toHaveLength(1);
  });

  it('are not listed if the base URL is wrong, and the error suggests a check of the base URL', async () => {
    const wrong = scene([{ ...says({}, 404), text: '<html>404 page not found</html>' }]);
    await expect(fetchModels(wrong)).rejects.toMatchObject({
      ...{ code: 'not_found', next: ['mgw', 'doctor'] },
      message: expect.stringContaining('check the base URL') as string,
    });
    const moved = scene([says({}, 302, { location: 'https://login.example/' })]);
    await expect(fetchModels(moved)).rejects.toThrow(
      'HTTP 302: the gateway redirects the model list to https://login.example/, and mgw does not follow redirects. Check the base URL: mgw adds /v1 itself.',
    );
  });

  it('are not listed if the gateway refuses the request, and the error contains the time of the next attempt', async () => {
    const refused = scene([says({ error: { message: 'bad key' } }, 401, { 'x-request-id': 'r1' })]);
    await expect(fetchModels(refused)).rejects.toMatchObject({
      ...{ code: 'auth', exitCode: 3, retry: 'never', requestId: 'r1' },
    });
    const busy = scene([says({ error: { message: 'busy' } }, 429, { 'retry-after': '7' })]);
    const error: unknown = await fetchModels(busy, undefined, { retries: 0 }).catch(
      (reason: unknown) => reason,
    );
    expect(error).toMatchObject({
      ...{ code: 'rate_limited', retry: 'safe' },
      message: expect.stringMatching(/busy\. .*7 s/) as string,
    });
  });
});

describe('the cached models', () => {
  it('are the last list of the same gateway', async () => {
    const state = freshFolder();
    const [one, other] = [scene([], {}, state), scene([], { MGW_BASE_URL: 'https://g.example' }, state)];
    const [own, others] = [await one.settings(), await other.settings()];
    const model = { id: 'm', protocols: ['c'], model_versions: [] };
    const listed = { ...model, endpoints: [], raw: {} };
    await rememberModels(own, [listed]);
    await rememberModels(own, [listed]);
    expect([recallModels(own), recallModels(others)]).toEqual([[model], []]);
    const [name = '', ...more] = readdirSync(join(state, 'models'));
    expect(more).toEqual([]);
    for (const text of [
      '',
      '[]',
      '{"models":7}',
      '{"models":[null,7,{"id":7,"protocols":[],"model_versions":[]},{"id":"x","model_versions":[]},{"id":"x","protocols":[]}]}',
    ]) {
      writeFileSync(join(state, 'models', name), text);
      expect(recallModels(own), text).toEqual([]);
    }
  });
});

describe('the model list', () => {
  it('may be unavailable if the list is needed only for checks, unless the certificate is invalid', async () => {
    const silent = scene([says({}, 503)]);
    expect(await listedModels(silent, 'check')).toBeUndefined();
    expect(silent.calls).toMatchObject([{ timeoutMs: 10_000 }, {}]);
    expect(silent.notes.at(-1)).toContain('Could not fetch the model list');
    expect(await listedModels(scene([says({}, 401)]), 'check')).toBeUndefined();
    const unreachable = scene([unsent('unreachable')]);
    expect(await listedModels(unreachable, 'check')).toBeUndefined();
    expect(unreachable.calls).toHaveLength(2);
    await expect(listedModels(scene([unsent('certificate')]), 'check')).rejects.toMatchObject({
      ...{ exitCode: 6, message: expect.not.stringContaining('taken from the model list') as string },
    });
  });

  it('must be available if a field of the body, or the protocol, is taken from the list', async () => {
    const silent = scene([says({}, 503)]);
    const missing = listedModels(silent, 'fill');
    await expect(missing).rejects.toMatchObject({
      ...{ exitCode: 6, retry: 'safe' },
      message: expect.stringContaining('--model-version') as string,
    });
    expect(silent.calls).toHaveLength(6);
    await expect(listedModels(scene([says({}, 503)]), 'find')).rejects.toThrow(
      'Specify it (mgw video a, b or c)',
    );
    const refused = listedModels(scene([says({ error: { message: 'bad key' } }, 401)]), 'fill');
    await expect(refused).rejects.toMatchObject({
      ...{ exitCode: 3, message: expect.not.stringContaining('--model-version') as string },
    });
    expect(await listedModels(scene([says({ error: { message: 'no' } }, 404)]), 'fill')).toBeUndefined();
  });

  it('is fetched once, even by two concurrent requests', async () => {
    const own = scene([says(listing)]);
    const ask = oneListing(own);
    const [one, other] = await Promise.all([ask('check'), ask('check')]);
    expect([one, await ask('fill')]).toEqual([other, other]);
    expect(own.calls).toHaveLength(1);
    const failing = scene([says({ error: { message: 'no' } }, 404)]);
    const askAgain = oneListing(failing);
    expect([await askAgain('check'), await askAgain('check')]).toEqual([undefined, undefined]);
    expect(failing.calls).toHaveLength(1);
  });
});

describe('the protocol of a model', () => {
  const find = (model: string, more = {}, own = scene([says(listing)])): Promise<string> =>
    protocolOfModel(own, model, oneListing(own), more).then(({ name }) => name);

  it('is taken from the model list or else the specification, and a dry run fetches the list only if necessary', async () => {
    expect(await find('veo-3')).toBe('a');
    expect(await find('vendor-h3')).toBe('c');
    const own = scene([says(listing)]);
    expect(await find('vendor-h3', { dryRun: true }, own)).toBe('c');
    expect(own.calls).toHaveLength(0);
    expect(await find('vendor-h4', { dryRun: true }, own)).toBe('c');
    expect(own.calls).toHaveLength(1);
    // The list has been cached, so this call does not fetch it.
    expect(await find('vendor-h4', { dryRun: true }, own)).toBe('c');
    expect(own.calls).toHaveLength(1);
    const changed = scene([says({ data: [{ id: 'vendor-h3', protocol: 'b' }] })]);
    expect(await find('vendor-h3', {}, changed)).toBe('b');
  });

  it('must be specified if several protocols or no known protocol serve the model, and causes an error if the list is unavailable', async () => {
    const two = scene([says({ data: [{ id: 'both', protocols: ['a', 'c'] }] })]);
    await expect(find('both', {}, two)).rejects.toMatchObject({ protocols: ['a', 'c'] });
    await expect(find('veo-4')).rejects.toMatchObject({
      message: expect.stringContaining('Did you mean veo-3?') as string,
      protocols: undefined,
      correction: { flags: ['-m', '--model'], value: 'veo-3' },
    });
    await expect(find('zzzzzzzz')).rejects.toThrow(/zzzzzzzz\.$/);
    const without = scene([says({}, 404)]);
    await expect(find('veo-4', {}, without)).rejects.toMatchObject({ protocols: ['a', 'b', 'c'] });
    await expect(find('veo-4', {}, scene([says({}, 503)]))).rejects.toMatchObject({ exitCode: 6 });
    expect(await find('vendor-h3-mini', {}, scene([says({}, 503)]))).toBe('c');
  });

  it('is refused if it contradicts the model list or the specification', () => {
    const listed = [{ id: 'm', protocols: ['a', 'b'] }];
    expect(() => refuseOtherProtocol(protocols.c, 'm', listed)).toThrow(
      /m is served by Protocols A and B, not by Protocol C/,
    );
    expect(() => refuseOtherProtocol(protocols.c, 'm', listed, false)).not.toThrow(/\bm is served/);
    expect(() => refuseOtherProtocol(protocols.c, 'm', listed, false)).toThrow(
      expect.objectContaining({ protocols: ['a', 'b'] }),
    );
    expect(() => refuseOtherProtocol(protocols.a, 'm', listed)).not.toThrow();
    expect(() => refuseOtherProtocol(protocols.c, 'other', listed)).not.toThrow();
  });

  it('is known from the specification or from an earlier model list', async () => {
    const own = scene([says(listing)]);
    const settings = await own.settings();
    expect(isKnownToServe(protocols.c, 'vendor-h3', settings)).toBe(true);
    await fetchModels(own);
    expect(isKnownToServe(protocols.c, 'vendor-h4', settings)).toBe(true);
    expect(isKnownToServe(protocols.c, 'veo-3', settings)).toBe(false);
  });
});
