import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { readableFolders } from '../../src/cli/commands/batch/row-work.ts';
import { runHereAs } from '../support/one-process.ts';
import { freshFolder } from '../support/fresh-folder.ts';
import { openScene, type Scene } from './scene.ts';

const secret = 'PGPASSWORD=hunter2';
const png = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);

let scene: Scene;
let outside: string;
beforeAll(async () => {
  scene = await openScene();
});
beforeEach(() => {
  outside = freshFolder();
  writeFileSync(join(outside, 'secret'), secret);
  writeFileSync(
    join(outside, 'body.json'),
    JSON.stringify({ model: 'vendor-h3', prompt: 'a boat', duration: 5 }),
  );
  writeFileSync(join(outside, 'image.png'), png);
  scene.gateway.requests.splice(0);
});
afterAll(() => scene.gateway.close());

const jsonl = (row: object): string => JSON.stringify({ id: 'a', ...row });

describe('a local file in a manifest', () => {
  const fields: [string, (path: string) => object][] = [
    ['file', (file) => ({ protocol: 'tts', file })],
    ['body', (path) => ({ protocol: 'c', body: `@${path}` })],
    ['image', (image) => ({ protocol: 'a', model: 'veo-3', prompt: 'a boat', image })],
    [
      'ext-info',
      (path) => ({
        protocol: 'b',
        model: 'Kling',
        'model-version': '2.0',
        prompt: 'a boat',
        'ext-info': `@${path}`,
      }),
    ],
  ];
  it('is not read, through any field, if it is outside the allowed folders', async () => {
    const secretFile = join(outside, 'secret');
    const [, body] = fields[1] ?? [];
    const rows = [
      ...fields.map(([field, row]) => [field, row(secretFile)] as const),
      ...[
        `../../../../../../../../../../${secretFile}`,
        link('link', secretFile),
        join(link('folder', outside), 'secret'),
        '/proc/self/environ',
        join(outside, 'missing'),
      ].map((path) => ['body', body?.(path)] as const),
    ];
    const lines = rows.map(([, row], index) => JSON.stringify({ id: `row-${index}`, ...row }));
    const file = scene.file('m.jsonl', lines.join('\n'));
    for (const command of ['plan', 'run', 'status']) {
      const { stderr, stdout, code } = await scene.batch(command, file);
      expect([command, code]).toEqual([command, command === 'status' ? 11 : 2]);
      for (const [index, [field]] of rows.entries())
        expect(stderr).toMatch(
          new RegExp(`m\\.jsonl:${index + 1}: ${field}: .* outside the folders.*--allow-files`),
        );
      expect(stderr + stdout).not.toContain('hunter2');
    }
    expect(scene.gateway.requests).toEqual([]);
  });

  it('is refused if its path begins with ~, also in the field output', async () => {
    const output = { protocol: 'tts', text: 'hi', output: '~/a.x' };
    const rows = [...fields.map(([, row]) => row('~/a.x')), output];
    const lines = rows.map((row, index) => JSON.stringify({ id: `row-${index}`, ...row }));
    const { stderr, code } = await scene.batch('plan', scene.file('m.jsonl', lines.join('\n')));
    const problems = [...stderr.matchAll(/m\.jsonl:(\d): ([\w-]+): .*~\/a\.x must be a path without ~/g)];
    expect([code, problems.map(([, line, field]) => [line, field])]).toEqual([
      2,
      [...fields.map(([field]) => field), 'output'].map((field, index) => [String(index + 1), field]),
    ]);
  });

  it.each(fields.slice(1, 3))(
    'is read through the field %s below a folder that --allow-files allows',
    async (field, row) => {
      const name = field === 'image' ? 'image.png' : 'body.json';
      const file = scene.file('m.jsonl', jsonl(row(join(outside, name))));
      expect(await scene.batch('plan', file, '--allow-files', outside)).toMatchObject({ code: 0 });
      expect((await scene.batch('plan', file, '--allow-files', join(outside, 'none'))).code).toBe(2);
    },
  );

  it('is read through a link once --allow-files allows the folder that the error suggests', async () => {
    const body = link('body-link', join(outside, 'body.json'));
    const file = scene.file('m.jsonl', jsonl({ protocol: 'c', body: `@${body}` }));
    const { stderr } = await scene.batch('plan', file);
    expect(stderr).toContain(`--allow-files ${outside}`);
    expect(await scene.batch('plan', file, '--allow-files', outside)).toMatchObject({ code: 0 });
  });

  it("is read below the manifest's folder, regardless of the current folder", async () => {
    const file = join(outside, 'm.jsonl');
    writeFileSync(file, jsonl({ protocol: 'c', body: `@${join(outside, 'body.json')}` }));
    expect(await scene.batch('plan', file)).toMatchObject({ code: 0 });
  });

  it('cannot be anywhere on the disk if the manifest is in the root folder, unless --allow-files allows the root folder', async () => {
    expect(await readableFolders('/m.csv')).toEqual([process.cwd()]);
    expect(await readableFolders('/m.csv', ['/'])).toContain('/');
  });

  it('does not cause another file to be read if its content refers to that file', async () => {
    const inner = scene.at('inner');
    writeFileSync(inner, `@${join(outside, 'secret')}`);
    const row = fields[3]?.[1](inner) ?? {};
    const { stderr, code } = await scene.batch('plan', scene.file('m.jsonl', jsonl(row)));
    expect([code, stderr]).toEqual([
      2,
      expect.stringMatching(/ext-info.*: the value in the file is not allowed/i),
    ]);
    expect(stderr).not.toContain('hunter2');
  });

  const wrong: [string, string, (path: string) => object][] = [
    ['text that is not JSON', secret, (path) => ({ protocol: 'c', body: `@${path}` })],
    ['a number', `{"hunter2":12345678901234567890}`, (path) => ({ protocol: 'c', body: `@${path}` })],
    [
      'a field',
      `{"model":"hunter2","prompt":"p","duration":"hunter2"}`,
      (path) => ({ protocol: 'c', body: `@${path}` }),
    ],
    ['extension parameters', `{"ExtVideoParameters":{"hunter2":1}}`, (path) => fields[3]?.[1](path) ?? {}],
    ['text that cannot be sent', secret, (path) => fields[3]?.[1](path) ?? {}],
    ['an image', secret, (path) => fields[2]?.[1](path) ?? {}],
    ['nothing to speak', '...', (path) => ({ protocol: 'tts', file: path })],
  ];
  it('is not quoted in errors, regardless of its content', async () => {
    const lines = wrong.map(([, content, row], index) => {
      writeFileSync(scene.at(`inside-${index}`), content);
      return JSON.stringify({ id: `row-${index}`, ...row(scene.at(`inside-${index}`)) });
    });
    const { code, stderr } = await scene.batch('plan', scene.file('m.jsonl', lines.join('\n')));
    expect(code).toBe(2);
    for (const [index, [content]] of wrong.entries())
      expect(stderr, content).toContain(`m.jsonl:${index + 1}: `);
    expect(stderr).not.toMatch(/hunter2|PGPASS|1234|\.\.\.(?!,)/);
  });

  it('is not quoted when a row differs from its job', async () => {
    writeFileSync(
      scene.at('b.json'),
      JSON.stringify({ model: 'vendor-h3-mini', prompt: 'a boat', duration: 5 }),
    );
    const file = scene.file('diff.jsonl', jsonl({ protocol: 'c', body: `@${scene.at('b.json')}` }));
    expect(await scene.batch('run', file)).toMatchObject({ code: 0 });
    writeFileSync(
      scene.at('b.json'),
      JSON.stringify({ model: 'vendor-h3-mini', prompt: secret, duration: 5 }),
    );
    const { rows } = await scene.read('plan', file);
    expect(rows).toMatchObject([{ state: 'changed', changes: ['prompt differs'] }]);
  });

  function link(name: string, target: string): string {
    const folder = scene.at(`links-${Math.random()}`);
    mkdirSync(folder);
    symlinkSync(target, join(folder, name));
    return join(folder, name);
  }
});

it.each([
  [['video', 'c', 'submit', '--body', '@secret', '--dry-run']],
  [['video', 'b', 'submit', 'a boat', '-m', 'Kling', '--ext-info', '@secret', '--dry-run']],
  [['responses', '--body', '@secret']],
  [['api', 'POST', '/v1/x', '--body', '@secret']],
])('the command %j does not quote the content of @FILE in its errors', async (args) => {
  writeFileSync(scene.at('secret'), secret);
  const { code, stderr } = await runHereAs(scene.user, args);
  expect([code, stderr]).toEqual([2, expect.not.stringMatching(/hunter2|PGPASS/)]);
});
