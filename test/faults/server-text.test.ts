import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import type { ProtocolName } from '../../src/protocols/registry.ts';
import { canaryKey } from '../support/cli.ts';
import { reply, type Call } from './gateway.ts';
import { preloaded } from './preloads.ts';
import { fast, it, shown, type Scene } from './scene.ts';

const protocols = ['a', 'b', 'c'] as const;

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** One change at one place in a response. */
interface Mutation {
  path: string;
  change: string;
  body: Json;
}

const changes: Record<string, Json | undefined> = {
  removed: undefined,
  null: null,
  'a text': 'text',
  'an empty text': '',
  'a number': 7,
  true: true,
  'an object': { inside: 1 },
  'a list': [1],
  'an empty list': [],
};

/** Returns every change to every member and element of a response, one at a time. */
function mutationsOf(body: Json): Mutation[] {
  const all = pathsIn(body).flatMap((path) =>
    Object.entries(changes).map(([change, value]) => ({
      path: path.join('.'),
      change,
      body: withValue(body, path, value) ?? null,
    })),
  );
  return all.filter((mutation) => JSON.stringify(mutation.body) !== JSON.stringify(body));
}

function pathsIn(value: Json): string[][] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, member]) => [
    [name],
    ...pathsIn(member).map((path) => [name, ...path]),
  ]);
}

function withValue(value: Json, [name, ...rest]: string[], to: Json | undefined): Json | undefined {
  if (name === undefined) return to;
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).flatMap(([key, member]): [string, Json][] => {
    const next = key === name ? withValue(member, rest, to) : member;
    return next === undefined ? [] : [[key, next]];
  });
  return Array.isArray(value) ? entries.map(([, member]) => member) : Object.fromEntries(entries);
}

/** Runs a function for each item, at most 24 at a time. */
async function forEach<T>(
  items: readonly T[],
  run: (item: T, index: number) => Promise<void>,
): Promise<void> {
  const rest = items.entries();
  const worker = async (): Promise<void> => {
    for (const [index, item] of rest) await run(item, index);
  };
  await Promise.all(Array.from({ length: 24 }, worker));
}

describe.concurrent('a speech frame with a field removed, set to null or of another type', () => {
  it('leads to exit 0 only if the file contains exactly the received audio', async ({ open }) => {
    const audio = Buffer.from('the first half and the second half');
    const scene = await open('tts', { video: audio });
    const [first, second] = [audio.subarray(0, 14), audio.subarray(14)];
    const frame = { code: 0, message: '', data: second.toString('base64') };
    const end = { code: 20_000_000, message: 'ok', data: null, usage: { text_words: 7 } };
    const begin = JSON.stringify({ code: 0, message: '', data: first.toString('base64') });
    const cases = [
      ...mutationsOf(frame).map((mutation) => ({ ...mutation, of: 'data', rest: [mutation.body, end] })),
      ...mutationsOf(end).map((mutation) => ({ ...mutation, of: 'end', rest: [frame, mutation.body] })),
    ];
    scene.gateway.always.submit = ({ gateway, response, body }) => {
      const { rest = [] } = cases[Number(/boat (\d+)\./.exec(body)?.[1])] ?? {};
      gateway.speak(response, [begin, ...rest.map((each) => JSON.stringify(each))]);
    };
    let zeros = 0;
    await forEach(cases, async ({ of, path, change }, index) => {
      const out = join(scene.user.cwd, `${index}.mp3`);
      const json = await scene.here(['tts', `A boat ${index}.`, '-o', out]);
      const what = `${of} ${path} ${change}: ${JSON.stringify(json)}`;
      expect([0, 5, 9], what).toContain(json.exit_code);
      expect(existsSync(out), what).toBe(json.exit_code === 0);
      if (json.exit_code !== 0) return;
      zeros += 1;
      // The command may succeed, because a frame may have no audio (specification 2.6), and a text may happen to be
      // valid Base64.
      const told = change === 'a text' ? Buffer.from('text', 'base64') : Buffer.alloc(0);
      const kept = of === 'data' && path === 'data' ? first : audio;
      const expected = path === 'data' ? Buffer.concat([kept, told]) : audio;
      expect(readFileSync(out).equals(expected), what).toBe(true);
      expect(path, what).not.toBe('code');
    });
    expect(zeros).toBeGreaterThan(8);
    expect(scene.gateway.submissions).toHaveLength(cases.length);
  });
});

const evil = [
  '\u001b[31mred\u001b[0m',
  '\u001b]8;;http://example.com\u0007link\u001b]8;;\u0007',
  '\u001b]52;c;ZXZpbA==\u0007',
  '\u0007\u0008\u000c\u007f',
  'over\rwritten',
  '\u202eredro\u202c \u2066x\u2069',
  '\u009b31m\u0090q\u009c',
  '\u2028\u2029\ufeff',
].join(' | ');
const long = `${evil} ${'very long '.repeat(100_000)}`;

/** Fails if the text contains control characters that a terminal would execute, or is longer than `most` characters. */
function expectHarmless(text: string, most: number): void {
  expect(text).not.toMatch(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/,
  );
  expect(text.length).toBeLessThan(most);
}

describe.concurrent('control characters in messages of a megabyte', () => {
  const places: [string, ProtocolName, (scene: Scene) => void][] = [
    [
      'a refused submission',
      'c',
      ({ gateway }) =>
        (gateway.always.submit = { status: 400, body: { error: { message: long, code: evil } } }),
    ],
    [
      'a lost response',
      'a',
      ({ gateway }) => (gateway.always.submit = { status: 500, body: { error: { message: long } } }),
    ],
    [
      'a response of a busy gateway',
      'b',
      ({ gateway }) => (gateway.always.submit = { status: 429, body: { error: { message: long } } }),
    ],
    [
      'a status word',
      'c',
      ({ gateway }) => (gateway.always.query = task((task_id) => ({ task_id, status: long.slice(0, 5000) }))),
    ],
    [
      'a failed task',
      'c',
      ({ gateway }) =>
        (gateway.always.query = task((task_id) => ({
          task_id,
          status: 'failed',
          error: { message: long, code: evil },
        }))),
    ],
    [
      'a failed operation',
      'a',
      ({ gateway }) =>
        (gateway.always.query = task((name) => ({ name, done: true, error: { code: 3, message: long } }))),
    ],
    ["B's message", 'b', ({ gateway }) => (gateway.always.query = task((handle) => detail(handle, long)))],
    [
      'a handle',
      'c',
      ({ gateway }) => (gateway.always.submit = { body: { task_id: evil, error: { message: long } } }),
    ],
    [
      'a response in place of the video',
      'c',
      ({ gateway }) => (gateway.always.content = { body: { error: { message: long } } }),
    ],
    [
      'a request id',
      'c',
      ({ gateway }) =>
        (gateway.always.submit = { status: 400, body: { error: { message: 'no' }, request_id: long } }),
    ],
    [
      'a redirect',
      'c',
      ({ gateway }) =>
        (gateway.always.submit = {
          status: 307,
          headers: { location: `http://example.com/${'x'.repeat(9000)}` },
        }),
    ],
  ];
  const task =
    (bodyOf: (handle: string) => object) =>
    (call: Call): void =>
      reply(call.response, { body: bodyOf(call.gateway.dialect.asked(call)) });
  const detail = (handle: string, Message: string): object => ({
    Response: { AigcVideoTask: { TaskId: handle, Status: 'FINISH', ErrCode: 7, ErrCodeExt: evil, Message } },
  });

  it.for(places)('are escaped and truncated in %s', async ([, protocol, arrange], { open }) => {
    const scene = await open(protocol);
    arrange(scene);
    const command = scene.typed('--timeout', '1s', '--retries', '1');
    const run = await scene.seen(command);
    expect(run.code, shown(run)).not.toBe(0);
    expectHarmless(run.stdout + run.stderr, 20_000);
    const json = await scene.seen([...command, '--json']);
    expectHarmless(json.stdout.replaceAll('\n', '') + json.stderr, 200_000);
    const listed = await scene.seen(['jobs', 'ls', '--all']);
    expectHarmless(listed.stdout + listed.stderr, 20_000);
    const status = await scene.seen(['video', protocol, 'status', '@last']);
    expectHarmless(status.stdout + status.stderr, 20_000);
    for (const { code } of [listed, status, json]) expect(code).not.toBe(1);
  });
});

describe.concurrent('the API key, quoted by the gateway', () => {
  const told = `bad key ${canaryKey}, ${Buffer.from(`Bearer ${canaryKey}`).toString('base64')}`;
  const places: [string, (scene: Scene) => void][] = [
    [
      'in a refused submission',
      ({ gateway }) => (gateway.always.submit = { status: 401, body: { error: { message: told } } }),
    ],
    [
      'in a lost response',
      ({ gateway }) =>
        (gateway.always.submit = {
          status: 500,
          body: { error: { message: told } },
          headers: { 'x-echo': told },
        }),
    ],
    [
      'in a refused query',
      ({ gateway }) => (gateway.always.query = { status: 401, body: { error: { message: told } } }),
    ],
    [
      'in a failed task',
      ({ gateway }) =>
        (gateway.always.query = (call) =>
          reply(call.response, { body: { status: 'failed', error: { message: told, code: told } } })),
    ],
    [
      'in a status word',
      ({ gateway }) => (gateway.always.query = (call) => reply(call.response, { body: { status: told } })),
    ],
    [
      'in place of the video',
      ({ gateway }) => (gateway.always.content = { status: 200, body: { error: { message: told } } }),
    ],
    [
      'in a redirect URL',
      ({ gateway }) =>
        (gateway.always.content = { status: 302, headers: { location: `/other?key=${canaryKey}` } }),
    ],
  ];
  it.for(places)('is neither printed nor stored if it is quoted %s', async ([, arrange], { open }) => {
    const scene = await open('c');
    arrange(scene);
    const command = scene.typed('--timeout', '1s', '--retries', '1', '-v');
    const run = await scene.seen(command);
    expect(run.code, shown(run)).not.toBe(0);
    await scene.here(command);
    await scene.here(['jobs', 'show', '@last']);
    await scene.expectInvariants(2);
  });
});

describe.concurrent('__proto__ in responses', () => {
  const poison =
    '"__proto__":{"polluted":1,"status":"completed","done":true},"constructor":{"prototype":{"polluted":1}}';
  it.for(protocols)('does not pollute a prototype (%s)', async (protocol, { open }) => {
    const scene = await open(protocol);
    const { gateway } = scene;
    const poisoned = (body: object): string => `{${poison},${JSON.stringify(body).slice(1)}`;
    gateway.script.submit.push((call) =>
      reply(call.response, { body: poisoned(JSON.parse(gateway.accept()) as object) }),
    );
    gateway.always.query = (call) =>
      reply(call.response, { body: poisoned(gateway.shown(gateway.dialect.asked(call))) });
    gateway.polls = 2;
    const json = await scene.here(scene.command('--key', 'boat'));
    expect(json, JSON.stringify(json)).toMatchObject({ exit_code: 0 });
    expect(gateway.seen.filter(({ step }) => step === 'query')).toHaveLength(3);
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
    await scene.expectInvariants(1);
  });
});

describe.concurrent('a Content-Disposition with a path', () => {
  it('is ignored', async ({ open }) => {
    const scene = await open('c');
    const { content } = scene.gateway.served;
    scene.gateway.always.content = {
      body: content,
      headers: {
        'content-type': 'video/mp4',
        'content-disposition': 'attachment; filename="../../evil.mp4"',
      },
    };
    const { job } = await scene.here(scene.gateway.dialect.command);
    const run = await scene.run(['video', 'c', 'fetch', job.id, ...fast]);
    expect(run.code, shown(run)).toBe(0);
    expect(readdirSync(scene.user.cwd).sort()).toEqual([`${job.id}.mp4`, 'state']);
    scene.outputs.push(join(scene.user.cwd, `${job.id}.mp4`));
    await scene.expectInvariants(1);
  });
});

describe.concurrent('a hostile model list', () => {
  const listing = (scene: Scene, body: string): void => {
    scene.gateway.always.other = (call) => reply(call.response, { body });
  };

  it('is read in bounded memory if it has 10 MB', async ({ open }) => {
    const scene = await open('c');
    const entry = (index: number): string => `{"id":"model-${index}","note":"${'x'.repeat(900)}"}`;
    listing(scene, `{"data":[${Array.from({ length: 10_800 }, (_, index) => entry(index)).join(',')}]}`);
    const peak = join(scene.user.cwd, 'peak');
    const run = await scene.run(['models'], { env: preloaded('peak-memory', { MGW_TEST_PEAK: peak }) });
    expect(run.code, run.stderr).toBe(0);

    expect(Number(readFileSync(peak, 'utf8')), 'kilobytes').toBeLessThan(250_000);
  });

  it('leads to exit 6 in bounded memory if it has no end', async ({ open }) => {
    const scene = await open('c');
    scene.gateway.always.other = ({ socket }) => {
      const pour = (): void => {
        while (!socket.destroyed && socket.write('{"id":"x"},'.repeat(6000)));
      };
      socket.write('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{"data":[');
      socket.on('drain', pour);
      pour();
    };
    const peak = join(scene.user.cwd, 'peak');
    const env = preloaded('peak-memory', { MGW_TEST_PEAK: peak });
    const run = await scene.run(['models', '--retries', '0', '--json'], { env });
    expect(run.json, shown(run)).toMatchObject({ exit_code: 6 });
    expect(Number(readFileSync(peak, 'utf8')), 'kilobytes').toBeLessThan(600_000);
  });

  it('is escaped if its model ids contain control characters', async ({ open }) => {
    const scene = await open('c');
    listing(scene, JSON.stringify({ data: [{ id: evil, model_versions: [evil] }, { id: 'plain' }] }));
    const run = await scene.seen(['models']);
    expect(run.code, shown(run)).toBe(0);
    expect(run.stdout).toContain('plain');
    expectHarmless(run.stdout + run.stderr, 20_000);
    expectHarmless((await scene.seen(['models', '--json'])).stdout.replaceAll('\n', ''), 20_000);
  });

  it.for(['{"data":{"id":"x"}}', '{"data":"x"}', '{"data":null}', '{}', 'null', '[]', '7', '<html>'])(
    'does not cause a crash if it is %s',
    async (body, { open }) => {
      const scene = await open('c');
      listing(scene, body);
      const json = await scene.here(['models', '--retries', '0']);
      expect([0, 6], JSON.stringify(json)).toContain(json.exit_code);
      if (json.exit_code === 0) expect(json['models']).toEqual([]);
    },
  );
});
