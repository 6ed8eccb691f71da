import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  lchownSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config/read.ts';
import { MgwError } from '../../src/errors.ts';

let folder: string;
let file: string;

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'mgw-config-'));
  file = path.join(folder, 'config.json');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const read = (): ReturnType<typeof readConfig> => readConfig({ MGW_CONFIG_DIR: folder });

function put(content: string | Uint8Array, mode = 0o600): void {
  writeFileSync(file, content);
  chmodSync(file, mode);
}

async function refusal(): Promise<string> {
  const error = await read().then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(MgwError);
  expect(error).toMatchObject({ code: 'config', exitCode: 2, charged: 'no' });
  expect((error as MgwError).message).toContain(file);
  return (error as MgwError).message;
}

describe('readConfig', () => {
  it('returns an empty config if the file or its folder does not exist', async () => {
    expect(await read()).toEqual({ profiles: {} });
    rmSync(folder, { recursive: true });
    expect(await read()).toEqual({ profiles: {} });
  });

  it('reads every setting', async () => {
    const config = {
      profile: 'work',
      profiles: {
        work: {
          base_url: 'https://gateway.example',
          api_key: 'sk-1',
          allow_http: false,
          trusted_origins: ['https://files.example'],
          timeout: '20m',
          poll_interval: '5s',
          request_timeout: '30s',
          retries: 3,
          submit: { retry_5xx: true },
          tts: { speaker: 's', format: 'mp3', sample_rate: 24000 },
          c: { auth_header: 'X-Api-Key', auth_scheme: '' },
          sandbox: { pace: '2s' },
          defaults: { video: { a: { 'veo-3.1': { duration: 8, audio: true, resolution: '720p' } } } },
        },
      },
    };
    put(`\u{feff}${JSON.stringify(config)}`);
    expect(await read()).toEqual(config);
  });

  it.each([
    ['', /it is empty/],
    ['{', /it is not JSON/],
    ['[]', /not a JSON object/],
    ['null', /not a JSON object/],
    ['{"profiles":[]}', /profiles: it must be of type/],
    ['{"profiles":{"default":{"timeout":5}}}', /profiles\.default\.timeout: it must be of type string/],
    ['{"profiles":{"default":{"tiemout":"5m"}}}', /profiles\.default: unknown setting tiemout/],
    ['{"profiles":{"default":{"retries":1.5}}}', /profiles\.default\.retries/],
    ['{"profiles":{"default":{"defaults":{"video":{"D":{}}}}}}', /defaults\.video\.D: it must be/],
    ['{"profiles":{"default":{"prices":{"tss":"video=1"}}}}', /prices\.tss: it must be of type record/],
    [
      '{"profiles":{"default":{"defaults":{"video":{"a":{"m":{"duration":{}}}}}}}}',
      /m\.duration: it must be a string/,
    ],
    ['{"profile":1}', /profile: it must be of type string/],
    ['{"__proto__":{"profiles":{}}}', /member "__proto__"/],
    ['{"profiles":{"__proto__":{"api_key":"x"}}}', /member "__proto__"/],
    ['{"profiles":{"default":{"defaults":{"video":{"a":{"constructor":{}}}}}}}', /member "constructor"/],
  ])('refuses the content %s', async (text, why) => {
    put(text);
    expect(await refusal()).toMatch(why);
  });

  it('does not quote a possible key from a file that is not JSON', async () => {
    put('sk-sesame-open');
    expect(await refusal()).not.toContain('sesame');
    put('{"profiles":{"default":{"api_key":"sk-sesame"}}x}');
    expect(await refusal()).not.toContain('sesame');
    put('{"profiles":{"default":{"api_key":"sk-sesame","retries":"sk-sesame"}}}');
    expect(await refusal()).not.toContain('sesame');
  });

  it('refuses a file that is not text, too large, or too deeply nested', async () => {
    put(Buffer.from([0x7b, 0xff, 0x7d]));
    expect(await refusal()).toContain('not UTF-8');
    put(' '.repeat(1024 * 1024 + 1));
    expect(await refusal()).toContain('larger than 1 MiB');
    put(`{"profiles":${'{"a":'.repeat(100_000)}1${'}'.repeat(100_000)}}`);
    expect(await refusal()).toContain('cannot be used');
  });

  it('refuses a folder, a pipe, a socket and a dangling link', async () => {
    mkdirSync(file);
    expect(await refusal()).toContain('it is a folder');
    rmSync(file, { recursive: true });
    execFileSync('mkfifo', [file]);
    expect(await refusal()).toContain('not a regular file');
    rmSync(file);
    symlinkSync('/dev/null', file);
    expect(await refusal()).toContain('not a regular file');
    rmSync(file);
    symlinkSync(path.join(folder, 'nothing'), file);
    expect(await refusal()).toContain('a symbolic link to a file that does not exist');
    rmSync(file);
    symlinkSync(file, file);
    expect(await refusal()).toContain('a symbolic link to itself');
  });

  it('follows a link to a valid file', async () => {
    const target = path.join(folder, 'dotfiles.json');
    writeFileSync(target, '{"profiles":{"default":{"api_key":"k"}}}', { mode: 0o600 });
    symlinkSync(target, file);
    expect((await read()).profiles['default']).toEqual({ api_key: 'k' });
    chmodSync(target, 0o644);
    expect(await refusal()).toContain('other users can read it');
  });

  it.each(['644', '640', '604', '660'])(
    'refuses a key in a file with mode %s, and explains how to fix it',
    async (mode) => {
      put('{"profiles":{"default":{"api_key":"k"}}}', Number.parseInt(mode, 8));
      const message = await refusal();
      expect(message).toMatch(
        /contains a key or a password, and other users can read it|other users can write to it/,
      );
      expect(message).toContain(`chmod 600 ${file}`);
    },
  );

  it('refuses a file that other users can write to, because they could set a different gateway', async () => {
    put('{"profiles":{}}', 0o622);
    expect(await refusal()).toContain('other users can write to it (mode 0622)');
    put('{"profiles":{}}', 0o644);
    expect(await read()).toEqual({ profiles: {} });
  });

  it.runIf(process.geteuid?.() === 0)("refuses another user's file or link, even as root", async () => {
    put('{"profiles":{}}', 0o644);
    chownSync(file, 4242, 4242);
    expect(await refusal()).toContain(`belongs to user 4242, and mgw runs as user 0`);
    chownSync(file, 0, 0);
    expect(await read()).toEqual({ profiles: {} });
    const target = path.join(folder, 'kept.json');
    renameSync(file, target);
    symlinkSync(target, file);
    lchownSync(file, 4242, 4242);
    expect(await refusal()).toContain('is a link that belongs to user 4242');
    const link = `${folder}-link`;
    symlinkSync(folder, link);
    lchownSync(link, 4242, 4242);
    rmSync(file);
    renameSync(target, file);
    await expect(readConfig({ MGW_CONFIG_DIR: link })).rejects.toThrow(
      `The config folder ${link} is a link that`,
    );
    rmSync(link);
  });

  it('returns a config or a clear error for any text without polluting a prototype', async () => {
    await fc.assert(
      fc.asyncProperty(fc.oneof(fc.json(), fc.string(), fc.uint8Array()), async (content) => {
        put(content);
        const result = await read().catch((error: unknown) => error);
        if (result instanceof Error) expect(result).toMatchObject({ name: 'MgwError', code: 'config' });
        else expect(result).toHaveProperty('profiles');
        expect(Object.keys(Object.prototype)).toEqual([]);
      }),
    );
  });
});
