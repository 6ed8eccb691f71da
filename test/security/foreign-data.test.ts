import type { RecordedEvent } from '../../src/job.ts';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { withSafePath } from '../../src/cli/commands/jobs/transfer.ts';
import { startGallery } from '../../src/gallery/server.ts';
import { withoutSignatures } from '../../src/redact.ts';
import { FaultGateway } from '../faults/gateway.ts';
import { canaryKey, newUser, type User } from '../support/cli.ts';
import { userHere } from '../support/one-process.ts';

const submit = ['video', 'c', 'submit', '--model', 'vendor-h3-mini', '--prompt'];

let gateway: FaultGateway;
let user: User;
beforeEach(async () => {
  gateway = await FaultGateway.start({ protocol: 'c' });
  user = userHere(gateway.url);
});
afterEach(() => gateway.close());

/** Returns the content of all files below a folder as one string. */
function textBelow(folder: string): string {
  const entries = readdirSync(folder, { withFileTypes: true, recursive: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => readFileSync(join(entry.parentPath, entry.name), 'latin1'))
    .join('\n');
}

const secret = 'the private text of another folder';

describe('an imported job', () => {
  // Imports a finished job whose record contains the given paths.
  async function importJob(output: string, file: { path: string; text: string }): Promise<User> {
    await user.run([...submit, 'a boat', '-o', 'boat.mp4', '--poll-interval', '50ms']);
    const exported = JSON.parse((await user.run(['jobs', 'export'])).stdout) as { events: object[] };
    const events = exported.events.map((event) => {
      if (!('type' in event)) return event;
      if (event.type === 'began') return { ...event, output };
      if (event.type !== 'file') return event;
      const sha256 = createHash('sha256').update(file.text).digest('hex');
      return { type: 'file', file: { path: file.path, bytes: Buffer.byteLength(file.text), sha256 } };
    });
    const other = userHere(gateway.url);
    writeFileSync(join(other.cwd, 'jobs.jsonl'), JSON.stringify({ ...exported, events }));
    const result = await other.run(['jobs', 'import', 'jobs.jsonl']);
    expect(result.code, result.stderr).toBe(0);
    return other;
  }

  it('is saved in the current folder even if its record contains a path outside it', async () => {
    const outside = newUser().cwd;
    const path = `../${outside.split('/').at(-1) ?? ''}/loot.mp4`;
    const other = await importJob(path, { path, text: secret });
    const fetched = await other.start(['jobs', 'fetch', '@last', '--poll-interval', '50ms']).result;
    expect(fetched.code, fetched.stderr).toBe(0);
    expect(fetched.stdout).toBe(`${join(other.cwd, 'loot.mp4')}\n`);
    expect(readdirSync(outside)).toEqual([]);
  });

  it('does not add its file to a gallery if the content differs from the record', async () => {
    const other = await importJob('loot.mp4', { path: 'loot.mp4', text: secret.toUpperCase() });
    writeFileSync(join(other.cwd, 'loot.mp4'), secret);
    const made = await other.start(['jobs', 'gallery', '-o', 'page', '--copy']).result;
    expect(made.code, made.stderr).toBe(0);
    const html = readFileSync(join(other.cwd, 'page', 'index.html'), 'utf8');
    expect(html).toContain('"files":[]');
    expect(html).toContain('loot.mp4 has changed since it was saved.');
    expect(textBelow(join(other.cwd, 'page'))).not.toContain(secret);
  });

  it('copies a linked file into a gallery as a regular file, not as a link', async () => {
    const other = await importJob('loot.mp4', { path: 'loot.mp4', text: secret });
    writeFileSync(join(other.cwd, 'film.mp4'), secret);
    symlinkSync('film.mp4', join(other.cwd, 'loot.mp4'));
    const made = await other.start(['jobs', 'gallery', '-o', 'page', '--copy']).result;
    expect(made.code, made.stderr).toBe(0);
    expect(textBelow(join(other.cwd, 'page', 'media'))).toBe(secret);
  });

  it('serves its file in a gallery only if the file has the recorded content', async () => {
    const path = join(user.cwd, 'a.mp4');
    writeFileSync(path, 'film');
    const sha256 = createHash('sha256').update('film').digest('hex');
    const server = await startGallery(0, {
      page: () => Promise.reject(new Error('no page')),
      fileOf: () => Promise.resolve({ path, bytes: 4, sha256 }),
      rate: () => Promise.resolve(),
    });
    try {
      const [address, headers] = [new URL('media/job/0/a.mp4', server.url), { range: 'bytes=1-2' }];
      expect(await (await fetch(address, { headers })).text()).toBe('il');
      for (const [text, status] of [
        ['loot', 404],
        ['loots', 404],
        ['film', 200],
      ] as const) {
        writeFileSync(path, text);
        expect((await fetch(address)).status, text).toBe(status);
      }
    } finally {
      await server.close();
    }
  });

  const at = '2026-01-01T00:00:00.000Z';
  it.each([
    ['/proc/self/environ', 'environ'],
    ['../other/clip.mp4', 'clip.mp4'],
    ['/home/you/.ssh/.id_rsa', 'id_rsa'],
    ['C:\\Users\\you\\clip.mp4', 'clip.mp4'],
    ['/work/\u{1b}[2Jclip.mp4', 'imported'],
    ['/work/..', 'imported'],
    ['s3://bucket/../speech.mp3', 'speech.mp3'],
  ])('has the path %j stored as %s', (path, name) => {
    const event = { type: 'file', at, file: { path, bytes: 1, sha256: '' } } as const;
    expect(withSafePath(event, user.cwd)).toMatchObject({ file: { path: name } });
  });

  // mgw reads an object with the user's credentials, but uses the object only if its SHA-256 is the recorded one. Only
  // someone who has the file knows the SHA-256. A rerun writes to the recorded output, so an import keeps only the
  // output's name.
  it("keeps a saved object's URL, but not the URL of an object that a rerun would write", () => {
    const path = 's3://bucket/clips/speech.mp3';
    const saved = { type: 'file', at, file: { path, bytes: 1, sha256: '' } } as const;
    expect(withSafePath(saved, user.cwd)).toEqual(saved);
    const began = { type: 'began', at, run: 'r', owner: {}, output: path } as unknown as RecordedEvent;
    expect(withSafePath(began, user.cwd)).toMatchObject({ output: 'speech.mp3' });
  });

  it('keeps a path whose real path is below the current folder', () => {
    symlinkSync('/tmp', join(user.cwd, 'link'));
    mkdirSync(join(user.cwd, 'out'));
    const pathOf = (name: string): unknown =>
      withSafePath(
        { type: 'file', at, file: { path: join(user.cwd, name), bytes: 1, sha256: '' } },
        user.cwd,
      );
    expect(pathOf('out/a.mp4')).toMatchObject({ file: { path: join(user.cwd, 'out/a.mp4') } });
    expect(pathOf('link/a.mp4')).toMatchObject({ file: { path: 'a.mp4' } });
    expect(pathOf('.config/a.mp4')).toMatchObject({ file: { path: 'a.mp4' } });
  });
});

describe('the API key', () => {
  it('is not written to any file in plain, Base64 or escaped form if a prompt contains it', async () => {
    const spellings = [
      canaryKey,
      Buffer.from(canaryKey).toString('base64'),
      canaryKey.replace(/./g, (character) => `\\u00${character.charCodeAt(0).toString(16)}`),
    ];
    const output = ['-o', 'boat.mp4', '--sidecar', '--poll-interval', '50ms'];
    const ran = await user.run([...submit, `say ${spellings.join(' ')}`, ...output]);
    expect(ran.code, ran.stderr).toBe(0);
    expect(readFileSync(join(user.cwd, 'boat.mp4.json'), 'utf8')).toContain(
      'say [redacted] [redacted] [redacted]',
    );
    expect(await user.start(['jobs', 'gallery', '-o', 'page']).result).toMatchObject({ code: 0 });
    const written = textBelow(user.cwd);
    for (const spelling of spellings) expect(written).not.toContain(spelling);
  });

  it('is not recorded if tags, a model name or member names contain it', async () => {
    const row = { id: 'a', protocol: 'c', model: 'vendor-h3-mini', prompt: 'a boat', tags: [canaryKey] };
    const body = { [canaryKey]: 'x' };
    writeFileSync(join(user.cwd, 'm.jsonl'), JSON.stringify({ ...row, body }));
    const results = ['--sidecar', '-o', '{id}.{ext}', '--results', join(user.cwd, 'results.jsonl')];
    const args = ['batch', 'run', 'm.jsonl', '--name', 'b', '--poll-interval', '50ms', ...results];
    const ran = await user.run([...args, '-d', `notes=${canaryKey}`, '--ignore-columns', 'notes']);
    expect(ran.code, ran.stderr).toBe(0);
    const named = ['video', 'c', 'submit', 'a boat', '--model', `m-${canaryKey}`, '--no-check'];
    expect((await user.run(named)).code).toBe(0);
    rmSync(join(user.cwd, 'm.jsonl'));
    expect(textBelow(user.cwd)).toContain('[redacted]');
    expect(textBelow(user.cwd)).not.toContain(canaryKey);
  });

  it('is refused in the names of keys, files, rows, batches, budgets and settings', async () => {
    const csv = (id: string): void =>
      writeFileSync(join(user.cwd, 'm.csv'), `id,model,prompt\n${id},vendor-h3-mini,a boat\n`);
    for (const [what, ...args] of [
      ['--key', ...submit, 'a boat', '--key', `a-${canaryKey}`],
      ['--output', ...submit, 'a boat', '-o', `${canaryKey}.mp4`],
      ['--key', 'tts', 'hello', '-o', 'a.mp3', '--key', `a-${canaryKey}`],
      ['id', 'batch', 'run', 'm.csv'],
      ['--name', 'batch', 'run', 'm.csv', '--name', canaryKey],
      ['the path', 'batch', 'run', 'm.csv', '-o', `${canaryKey}/{id}.{ext}`],
      ['NAME', 'budget', 'set', canaryKey, '5'],
      ['The setting', 'config', 'set', `prices.c.${canaryKey}`, 'second=1'],
      ['The setting', 'config', 'set', 'tts.speaker', `of-${canaryKey}`],
    ] as [string, ...string[]][]) {
      csv(what === 'id' ? canaryKey : 'a');
      const refused = await user.run(args);
      expect([refused.code, refused.stderr]).toEqual([
        2,
        expect.stringContaining(`${what} contains the API key`),
      ]);
      expect(refused.stderr).not.toContain(canaryKey);
    }
    expect(gateway.submissions).toHaveLength(0);
    rmSync(join(user.cwd, 'm.csv'));
    expect(textBelow(user.cwd)).not.toContain(canaryKey);
  });

  // Returns an environment whose key is in the given variable, or in a file.
  function keyIn(source: string): NodeJS.ProcessEnv {
    if (source === 'MGW_API_KEY') return user.env;
    writeFileSync(join(user.cwd, 'key'), canaryKey, { mode: 0o600 });
    return { ...user.env, MGW_API_KEY: undefined, MGW_API_KEY_FILE: join(user.cwd, 'key') };
  }

  it.each(['MGW_API_KEY', 'MGW_API_KEY_FILE'])(
    'is not recorded, if it comes from %s, when a note, a rating or an import contains it',
    async (source) => {
      const env = keyIn(source);
      await user.run([...submit, 'a boat']);
      const exported = (await user.run(['jobs', 'export'])).stdout;
      const { id } = JSON.parse(exported) as { id: string };
      const at = new Date(Date.now() + 60_000).toISOString();
      const noted: [string[], string][] = [
        [['jobs', 'rate', id, '4', '--note', `for ${canaryKey}`], ''],
        [['jobs', 'rate', '--import', '-'], JSON.stringify({ ratings: [{ job: id, at, note: canaryKey }] })],
        [
          ['jobs', 'import', '-'],
          exported.replaceAll('a boat', canaryKey).replaceAll(/(job_\w{12})\w\w/g, '$1aa'),
        ],
      ];
      for (const [args, stdin] of noted) {
        const ran = await user.run(args, { stdin, env });
        expect(ran.code, ran.stderr).toBe(0);
        expect(ran.stdout).not.toContain(canaryKey);
        expect(textBelow(join(user.cwd, 'state'))).toContain('[redacted]');
        expect(textBelow(join(user.cwd, 'state'))).not.toContain(canaryKey);
      }
    },
  );

  it.each(['a file', 'the profile'])(
    'does not appear, if it comes from %s, in the errors of commands that need no key',
    async (source) => {
      const env = keyIn('MGW_API_KEY_FILE');
      if (source === 'the profile') {
        env['MGW_API_KEY_FILE'] = undefined;
        const config = join(user.cwd, 'config');
        mkdirSync(config, { mode: 0o700 });
        const profiles = { default: { api_key: canaryKey } };
        writeFileSync(join(config, 'config.json'), JSON.stringify({ profiles }), { mode: 0o600 });
      }
      const commands = [
        ['jobs', 'show', canaryKey],
        ['jobs', 'ls', `--${canaryKey}`],
        ['config', 'get', canaryKey],
      ];
      for (const args of commands) {
        const ran = await user.run(args, { env });
        expect([ran.code, ran.stderr]).toEqual([2, expect.stringContaining('[redacted]')]);
        expect(ran.stderr).not.toContain(canaryKey);
      }
    },
  );

  it('is not recorded if a note in a served gallery contains it, even if the key comes from a file', async () => {
    await user.run([...submit, 'a boat']);
    const [job] = (await user.run(['jobs', 'ls', '--json'])).json['jobs'] as { id: string }[];
    const env = keyIn('MGW_API_KEY_FILE');
    const serving = newUser(gateway.url).start(['jobs', 'gallery', '--serve'], { env });
    const page = String(await once(serving.child.stdout, 'data').then(([text]) => text as Buffer)).trim();
    const headers = {
      'content-type': 'application/json',
      'x-mgw-token': new URL(page).pathname.split('/')[1] ?? '',
    };
    const rating = { job: job?.id, rating: 4, note: `for ${canaryKey}` };
    const { status } = await fetch(`${page}ratings`, {
      method: 'POST',
      headers,
      body: JSON.stringify(rating),
    });
    serving.child.kill('SIGINT');
    await serving.result;
    expect(status).toBe(204);
    const kept = textBelow(join(user.cwd, 'state'));
    expect(kept).toContain('for [redacted]');
    expect(kept).not.toContain(canaryKey);
  });

  it('is not quoted in the error of an invalid command', async () => {
    for (const args of [
      ['schema', canaryKey],
      ['--profile', canaryKey, 'jobs', 'ls'],
      ['tts', 'hello', canaryKey, '--json'],
    ]) {
      const { code, stdout, stderr } = await user.run(args);
      expect(code).toBe(2);
      expect(stdout + stderr).toContain('[redacted]');
      expect(stdout + stderr).not.toContain(canaryKey);
    }
  });

  it('is not recorded in the sandbox if it comes from the config', async () => {
    const ran = await user.run(['--sandbox', ...submit, `say ${canaryKey}`]);
    expect(ran.code, ran.stderr).toBe(0);
    expect(textBelow(user.cwd)).not.toContain(canaryKey);
    const shown = await user.run(['--sandbox', 'jobs', 'export']);
    expect(shown.stdout).toContain('say [redacted]');
    expect(shown.stdout).not.toContain(canaryKey);
    expect((await user.run(['jobs', 'export'])).stdout).toBe('');
    expect(gateway.seen).toEqual([]);
  });
});

it('sidecars, batch results and galleries contain no signed URL, and only the owner can read sidecars and batch results', async () => {
  const image = 'https://files.example/a.png?X-Amz-Expires=60&X-Amz-Signature=0123456789abcdef0123';
  const prompt = 'a boat as in https://files.example/b.png?auth_key=0123456789abcdef0123';
  const row = { id: 'a', protocol: 'c', model: 'vendor-h3-mini', prompt, image };
  writeFileSync(join(user.cwd, 'm.jsonl'), JSON.stringify(row));
  const args = ['batch', 'run', 'm.jsonl', '--sidecar', '-o', '{id}.{ext}'];
  const results = join(user.cwd, 'results.jsonl');
  const ran = await user.run([...args, '--results', results, '--poll-interval', '50ms']);
  expect(ran.code, ran.stderr).toBe(0);
  for (const name of ['a.mp4.json', 'results.jsonl']) {
    const path = join(user.cwd, name);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(readFileSync(path, 'utf8')).toContain('X-Amz-Signature=[redacted]');
    expect(() => JSON.parse(readFileSync(path, 'utf8')) as unknown).not.toThrow();
  }
  await user.start(['jobs', 'gallery', '-o', 'page']).result;
  const page = readFileSync(join(user.cwd, 'page/index.html'), 'utf8');
  expect(page).toContain('a boat as in https://files.example/b.png?auth_key=[redacted]');
  for (const text of [page, readFileSync(join(user.cwd, 'a.mp4.json'), 'utf8')])
    expect(text).not.toContain('0123456789abcdef0123');
});

it.each([
  ['https://h/a?sig=ab&x=1', 'https://h/a?sig=[redacted]&x=1'],
  ['see https://h/a?st=aaaaaaaaaaaaaaaaaaaaaa.', 'see https://h/a?st=[redacted]'],
  ['{"u":"https://user:pw@h/a"}', '{"u":"https://[redacted]@h/a"}'],
  [String.raw`{\"u\":\"https:\/\/h\/a?token=x\"}`, String.raw`{\"u\":\"https:\/\/h\/a?token=[redacted]\"}`],
  ['https://h/a?page=2&t=1.5#top', 'https://h/a?page=2&t=1.5#top'],
  [
    'https://h/a?hmac=0123456789&v=a%20b#token=x',
    'https://h/a?hmac=[redacted]&v=[redacted]#token=[redacted]',
  ],
  ['https://token@h/a?%73ig=x', 'https://[redacted]@h/a?%73ig=[redacted]'],
  ['//h/a?auth_key=1-0-0-x', '//h/a?auth_key=[redacted]'],
  ['s3://b/k?X-Amz-Signature=x', 's3://b/k?X-Amz-Signature=[redacted]'],
  ['with url: /in/a.png?X-Amz-Signature=x&b=1)', 'with url: /in/a.png?X-Amz-Signature=[redacted]&b=1)'],
  [
    'X-Amz-Credential%253Dkey%252Fus%2526X-Amz-Security-Token%3Dt%2Fu%26b',
    'X-Amz-Credential%253D[redacted]%2526X-Amz-Security-Token%3D[redacted]%26b',
  ],
  [
    String.raw`\\\"https:\\\/\\\/h\\\/a?a=1\\\u0026sig=x\\\"`,
    String.raw`\\\"https:\\\/\\\/h\\\/a?a=1\\\u0026sig=[redacted]\\\"`,
  ],
])('%j is exported as %j', (text, shown) => {
  expect(withoutSignatures(text)).toBe(shown);
});

it('a spreadsheet does not execute the cells of spend --csv', async () => {
  await user.run([...submit, 'a boat']);
  const exported = (await user.run(['jobs', 'export'])).stdout;
  const other = userHere(gateway.url);
  const models = ['=HYPERLINK("http://x")\u{9b}2J', '+1', '-1', '@SUM(1)'];
  const lines = models.map((model, index) =>
    exported
      .replaceAll('"vendor-h3-mini"', JSON.stringify(model))
      .replaceAll(/(job_\w{12})\w\w/g, `$1a${index}`),
  );
  writeFileSync(join(other.cwd, 'jobs.jsonl'), lines.join(''));
  await other.run(['jobs', 'import', 'jobs.jsonl']);
  const { stdout } = await other.run(['spend', '--csv']);
  const cells = stdout
    .trim()
    .split('\n')
    .slice(1)
    .map((line) => /^"(?:[^"]|"")*"/.exec(line)?.[0]);
  expect(cells.sort()).toEqual([`"'+1"`, `"'-1"`, `"'=HYPERLINK(""http://x"")\\u{9b}2J"`, `"'@SUM(1)"`]);
});
