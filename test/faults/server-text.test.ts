import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import type { ProtocolName } from '../../src/protocols/registry.ts';
import { canaryKey } from '../support/cli.ts';
import { detail } from './dialects.ts';
import { reply } from './gateway.ts';
import { fast, it, shown, type Scene } from './scene.ts';

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
  text: 'text',
  'a number': 7,
  'a list': [1],
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
      // The command may succeed, because a frame may have no audio (specification 2.6), and text may happen to be valid
      // Base64.
      const received = change === 'text' ? Buffer.from('text', 'base64') : Buffer.alloc(0);
      const kept = of === 'data' && path === 'data' ? first : audio;
      const expected = path === 'data' ? Buffer.concat([kept, received]) : audio;
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

/** Fails if the text contains control characters that a terminal would execute, or is longer than `max` characters. */
function expectHarmless(text: string, max: number): void {
  expect(text).not.toMatch(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/,
  );
  expect(text.length).toBeLessThan(max);
}

describe.concurrent('control characters in messages of a megabyte', () => {
  // test/security/text.test.ts tests shorter text in all fields of all commands.
  const places: [string, ProtocolName, (scene: Scene) => void][] = [
    [
      'a refused submission',
      'c',
      ({ gateway }) =>
        (gateway.always.submit = {
          status: 400,
          body: { error: { message: long, code: evil }, request_id: long },
        }),
    ],
    [
      'a failed task',
      'b',
      ({ gateway }) =>
        (gateway.always.query = (call) => {
          const task = { ErrCode: 7, ErrCodeExt: evil, Message: long };
          reply(call.response, { body: detail(call.gateway.dialect.queriedHandle(call), 'FINISH', task) });
        }),
    ],
    [
      'a response in place of the video',
      'c',
      ({ gateway }) => (gateway.always.content = { body: { error: { message: long } } }),
    ],
  ];

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
    for (const { code } of [listed, json]) expect(code).not.toBe(1);
  });
});

describe.concurrent('the API key, quoted by the gateway', () => {
  const message = `bad key ${canaryKey}, ${Buffer.from(`Bearer ${canaryKey}`).toString('base64')}`;
  // test/security/key.test.ts tests all fields of all commands.
  const places: [string, (scene: Scene) => void][] = [
    [
      'in a failed task',
      ({ gateway }) =>
        (gateway.always.query = (call) =>
          reply(call.response, { body: { status: 'failed', error: { message, code: message } } })),
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
  it('does not pollute a prototype', async ({ open }) => {
    const scene = await open('c');
    const { gateway } = scene;
    const poisoned = (body: object): string => `{${poison},${JSON.stringify(body).slice(1)}`;
    gateway.script.submit.push((call) =>
      reply(call.response, { body: poisoned(JSON.parse(gateway.accept()) as object) }),
    );
    gateway.always.query = (call) =>
      reply(call.response, { body: poisoned(gateway.shown(gateway.dialect.queriedHandle(call))) });
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
  it('leads to exit 6 if it has no end', async ({ open }) => {
    const scene = await open('c');
    let sent = 0;
    scene.gateway.always.other = ({ socket }) => {
      const more = '{"id":"x"},'.repeat(6000);
      const pour = (): void => {
        sent += more.length;
        if (!socket.destroyed) socket.write(more, pour);
      };
      socket.write('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{"data":[', pour);
    };
    const json = await scene.here(['models', '--retries', '0']);
    expect(json, JSON.stringify(json)).toMatchObject({ exit_code: 6 });
    expect(sent).toBeLessThan(32 * 1024 * 1024);
  });

  it('does not cause a crash, regardless of its form', async ({ open }) => {
    const scene = await open('c');
    for (const body of ['{"data":{"id":"x"}}', '{"data":null}', 'null', '7', '<html>']) {
      scene.gateway.always.other = { body };
      const json = await scene.here(['models', '--retries', '0']);
      expect([0, 6], JSON.stringify(json)).toContain(json.exit_code);
      if (json.exit_code === 0) expect(json['models']).toEqual([]);
    }
  });
});
