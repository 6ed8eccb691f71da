import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { rolldown } from 'rolldown';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readClaimLog } from '../../../src/files/claim-log.ts';
import { newAuthority } from '../../support/certificates.ts';
import { file, useDownloads } from '../../support/downloads.ts';
import { film } from '../../support/film.ts';
import { head, say, type Answer } from '../../support/raw-server.ts';

const etag = '"one"';
const ctx = useDownloads();
let program: string;
let programs: string;
beforeAll(async () => {
  programs = await mkdtemp(join(tmpdir(), 'mgw-program-'));
  const build = await rolldown({
    input: 'test/support/download-process.ts',
    platform: 'node',
    logLevel: 'silent',
  });
  await build.write({ dir: programs, format: 'esm' });
  await build.close();
  program = join(programs, 'download-process.js');
});
afterAll(() => rm(programs, { recursive: true }));

function target(): string {
  return join(ctx.folder, 'film.mp4');
}

function argumentsFor(url: string, baseUrl = url): string[] {
  return [program, url, target(), baseUrl, 'sk-secret'];
}

async function run(
  url: string,
  baseUrl?: string,
  env: Record<string, string> = {},
): Promise<Record<string, unknown>> {
  const options = { env: { ...process.env, ...env } };
  const { stdout } = await promisify(execFile)(process.execPath, argumentsFor(url, baseUrl), options);
  return JSON.parse(stdout) as Record<string, unknown>;
}

async function killed(child: ChildProcess): Promise<void> {
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}

describe('a killed process', () => {
  it('leaves its synced bytes for the next process', async () => {
    const content = film(80 * 1024 * 1024);
    const stalling: Answer = (_, socket) => {
      socket.write(head('200 OK', { etag, 'content-length': content.length }));
      socket.write(content.subarray(0, 75 * 1024 * 1024));
    };
    let answer = stalling;
    const server = await ctx.start((asked, socket) => answer(asked, socket));
    const child = spawn(process.execPath, argumentsFor(server.url()), { stdio: 'ignore' });
    await expect.poll(durable).toBeGreaterThan(32 * 1024 * 1024);
    await killed(child);
    answer = file({ content, etag });
    const from = await durable();
    expect(await run(server.url())).toMatchObject({ kind: 'done', bytes: content.length });
    expect(server.header('range')).toEqual(['', `bytes=${from}-`]);
    expect((await readFile(target())).equals(content)).toBe(true);
  });

  async function durable(): Promise<number> {
    const log = await readFile(`${target()}.part.json`, 'utf8').catch(() => '');
    return readClaimLog(log).metadata.durable ?? 0;
  }
});

describe('an https download', () => {
  const authority = newAuthority();
  const certificate = authority.issue({ hosts: ['localhost', '127.0.0.1'] });
  const content = film(30_000);

  async function trusting(): Promise<Record<string, string>> {
    const path = join(programs, 'authority.pem');
    await writeFile(path, authority.cert);
    return { NODE_EXTRA_CA_CERTS: path };
  }

  it('sends the key to the same host', async () => {
    const server = await ctx.start(file({ content, etag }), 'localhost', certificate);
    const url = server.url('/film.mp4', 'localhost').replace('http:', 'https:');
    expect(await run(url, url, await trusting())).toMatchObject({ kind: 'done', bytes: content.length });
    expect(server.header('authorization')).toEqual(['Bearer sk-secret']);
  });

  it('sends no request, is not retried, and exits 6, if the certificate is untrusted', async () => {
    const server = await ctx.start(file({ content, etag }), 'localhost', certificate);
    const url = server.url('/film.mp4', 'localhost').replace('http:', 'https:');
    const outcome = await run(url, url, { NODE_TLS_REJECT_UNAUTHORIZED: '0' });
    expect(outcome).toMatchObject({ code: 'unreachable', exitCode: 6 });
    expect(outcome['message']).toContain('certificate');
    expect(server.asked).toEqual([]);
  });

  it('exits 9 at a redirect to http, before any http request', async () => {
    const plain = await ctx.start(file({ content, etag }), 'localhost');
    const away: Answer = (_, socket) => say(socket, '302 Found', { location: plain.url('/x', 'localhost') });
    const server = await ctx.start(away, 'localhost', certificate);
    const url = server.url('/film.mp4', 'localhost').replace('http:', 'https:');
    expect(await run(url, url, await trusting())).toMatchObject({ code: 'result_unavailable', exitCode: 9 });
    expect(plain.asked).toEqual([]);
  });
});
