import { describe, expect } from 'vitest';
import { selfSigned } from '../support/certificates.ts';
import { fullBacklog } from './blackhole.ts';
import { preloaded } from './preloads.ts';
import { it, secured, shown } from './scene.ts';
import { says } from './until.ts';

const tried = 'trying again in';

describe.concurrent('a host name that fails to resolve twice', () => {
  it('ends with one submission', async ({ open }) => {
    const scene = await open('c');
    const { port } = new URL(scene.gateway.url);
    const env = preloaded('failing-dns', {
      MGW_TEST_DNS_FAILURES: '2',
      MGW_BASE_URL: `http://localhost:${port}`,
    });
    const run = await scene.run(scene.command('--key', 'boat'), { env });
    expect(run.code, shown(run)).toBe(0);
    expect(run.stderr.split('EAI_AGAIN')).toHaveLength(3);
    await scene.expectRerun(0);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('a program that replaces the global fetch, killed before the response', () => {
  it('has recorded the submission before the request, so the rerun exits with 7 and sends nothing', async ({
    open,
  }) => {
    const scene = await open('c');
    const running = scene.start(scene.command('--key', 'boat'), { env: preloaded('patched-fetch') });
    scene.gateway.script.submit.push(({ gateway }) => {
      gateway.accept();
      running.child.kill('SIGKILL');
    });
    expect((await running.result).code).toBe(137);
    await scene.expectRerun(7);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('a connection that is refused twice', () => {
  it('ends with one submission', async ({ open }) => {
    const scene = await open('c', { host: '127.0.0.3' });
    await scene.gateway.main.stop();
    const run = scene.start(scene.command('--key', 'boat'));
    await says(run, tried, 2);
    await scene.gateway.main.start();
    expect((await run.result).code, shown(await run.result)).toBe(0);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('a connection that is always refused', () => {
  it('leads to exit 6, and the rerun submits', async ({ open }) => {
    const scene = await open('c', { host: '127.0.0.3' });
    await scene.gateway.main.stop();
    const run = await scene.submit('--retries', '1');
    expect(run.json).toMatchObject({
      exit_code: 6,
      error: { code: 'unreachable', charged: 'no', retry: 'safe' },
    });
    await scene.gateway.main.start();
    const again = await scene.again();
    expect(again.code, shown(again)).toBe(0);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('a connection that times out', () => {
  const briefly = ['--request-timeout', '700ms', '--retries', '1'];

  it('leads to exit 6 if no packet gets a response, and the rerun submits', async ({ open }) => {
    const scene = await open('c');
    const blackhole = await fullBacklog('127.0.0.4');
    const json = await scene.here(scene.command(...briefly, '--base-url', blackhole.url));
    await blackhole.stop();
    expect(json).toMatchObject({ exit_code: 6, error: { code: 'unreachable', retry: 'safe' } });
    const again = await scene.submit();
    expect(again.code, shown(again)).toBe(0);
    await scene.expectInvariants(1);
  });

  it('leads to exit 6 if TLS stalls', async ({ open }) => {
    const scene = await open('c', { tls: selfSigned({ hosts: ['localhost'] }) });
    scene.gateway.onTcp.push(...Array.from({ length: 9 }, () => () => true));
    const run = await scene.submit(...briefly);
    expect(run.json).toMatchObject({ exit_code: 6, error: { code: 'unreachable', retry: 'safe' } });
    await scene.expectInvariants(0);
  });
});

describe.concurrent('an invalid certificate', () => {
  // test/http/connections.test.ts tests certificates that are expired or for another host.
  it('leads to exit 6 after one handshake, and nothing is sent', async ({ open }) => {
    const scene = await open('c', { tls: selfSigned({ hosts: ['localhost'] }) });
    const run = await scene.submit();
    expect(run.json, shown(run)).toMatchObject({
      exit_code: 6,
      error: { code: 'unreachable', charged: 'no' },
    });
    expect(run.json.error.message).toContain('certificate');
    expect(scene.gateway.main.connections).toHaveLength(1);
    await scene.expectRerun(6);
    expect(scene.gateway.main.connections).toHaveLength(2);
    expect(scene.gateway.seen).toEqual([]);
    await scene.expectInvariants(0);
  });
});

describe.concurrent('a reset during the TLS handshake', () => {
  it('ends with one submission', async ({ open }) => {
    const scene = await open('c', secured());
    scene.gateway.onTcp.push((socket) => {
      socket.once('data', () => socket.resetAndDestroy());
      return true;
    });
    const run = await scene.submit('--key', 'boat');
    expect(run.code, shown(run)).toBe(0);
    expect(run.stderr).toContain(tried);
    await scene.expectInvariants(1);
  });
});
