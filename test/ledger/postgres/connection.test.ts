import { writeFileSync } from 'node:fs';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { join } from 'node:path';
import { createSecureContext, TLSSocket } from 'node:tls';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { resolveSettings } from '../../../src/config/resolve.ts';
import { sharedLedger } from '../../../src/flows/settings.ts';
import { Database, DatabaseLost } from '../../../src/ledger/postgres/database.ts';
import { tlsOptions, tlsWarning } from '../../../src/ledger/postgres/tls.ts';
import { parseStateUrl } from '../../../src/state-url.ts';
import { type Authority, type Certificate, newAuthority, selfSigned } from '../../support/certificates.ts';
import { onEnd } from '../../support/clean-ups.ts';
import { newUser } from '../../support/cli.ts';
import { runHere } from '../../support/one-process.ts';
import { closedPort, freshFolder } from '../../support/servers.ts';

describe('a connection to the database', () => {
  afterEach(() => vi.unstubAllEnvs());

  it.each([
    ['postgres://db.example.com/d', true],
    ['postgres://db.example.com/d?sslmode=require', true],
    ['postgres://localhost/d?host=db.example.com', true],
    ['postgres://db.example.com/d?host=localhost&host=db.example.com', true],
    ['postgres://127.0.0.1.example.com/d', true],
    ['postgres://127.0.0.1/d?sslmode=verify-full', true],
    ['postgres://db.example.com/d?sslmode=no-verify', false],
    ['postgres://localhost/d?sslmode=no-verify', false],
  ])("verifies the server's certificate for %s: %s", (address, rejectUnauthorized) => {
    expect(tlsOptions(parseStateUrl(address))).toEqual({ rejectUnauthorized });
  });

  it.each([
    'postgres://localhost/d',
    'postgres://127.0.0.1:6432/d',
    'postgres://[::1]/d',
    'postgres://%2Fvar%2Frun/d',
    'postgres://db.example.com/d?sslmode=disable',
  ])('does not use TLS for %s', (address) => {
    expect(tlsOptions(parseStateUrl(address))).toBe(false);
  });

  it.each([
    ['postgres://db.example.com/d', undefined],
    ['postgres://localhost/d?sslmode=disable', undefined],
    ['postgres://db.example.com/d?sslmode=disable', 'not encrypted'],
    ['postgres://db.example.com/d?sslmode=no-verify', 'not verified'],
  ])('causes the following warning for %s: %s', (address, warning) => {
    const text = tlsWarning(parseStateUrl(address));
    if (warning === undefined) expect(text).toBeUndefined();
    else expect(text).toContain(warning);
  });

  it.each([
    [['state', 'init'], 'no-verify', 'is not verified (sslmode=no-verify)'],
    [['jobs', 'ls'], 'disable', 'is not encrypted: anyone on the network'],
  ])('causes a warning from the command %j if sslmode=%s', async (args, mode, warning) => {
    // 0.0.0.0 is not a loopback address, but nothing leaves this machine.
    const address = `postgres://mgw@0.0.0.0:${await closedPort()}/d?sslmode=${mode}&connect_timeout=1`;
    const { code, stderr } = await runHere(args, { ...newUser().env, MGW_STATE: address });
    expect([code, stderr]).toEqual([6, expect.stringContaining(warning)]);
  });

  it.each([
    ['postgres://db.example.com/d', true, 'disable'],
    ['postgres://db.example.com/d', false, undefined],
    ['postgres://db.example.com/d?sslmode=verify-full', true, 'verify'],
    ['postgres://db.example.com/d?sslrootcert=/ca.pem', true, undefined],
  ])(
    'has a TLS mode that depends on its address: %s with --allow-insecure-database=%s has the mode %s',
    (address, isAllowed, mode) => {
      const flags = { allowInsecureDatabase: isAllowed };
      const settings = resolveSettings({ flags, env: { MGW_STATE: address }, file: { profiles: {} } });
      expect(sharedLedger(settings)?.tls.mode).toBe(mode);
    },
  );

  it('has the TLS mode for the host in PGHOST if the address has no host', () => {
    vi.stubEnv('PGHOST', 'db.example.com');
    expect(tlsOptions(parseStateUrl('postgres:///d'))).toEqual({ rejectUnauthorized: true });
    vi.stubEnv('PGHOST', '/run/postgresql');
    expect(tlsOptions(parseStateUrl('postgres:///d'))).toBe(false);
  });

  it('fails with an error that contains the path of a certificate file that cannot be read', () => {
    const url = parseStateUrl('postgres://db/d?sslrootcert=/nowhere/ca.pem');
    expect(() => tlsOptions(url)).toThrow('/nowhere/ca.pem');
  });

  it('uses the certificate and key from the address', () => {
    const folder = freshFolder();
    const files = ['ca', 'cert', 'key'].map((name) => join(folder, `${name}.pem`));
    for (const file of files) writeFileSync(file, `of ${file}`);
    const [ca, cert, key] = files.map((file) => `of ${file}`);
    const names = ['sslrootcert', 'sslcert', 'sslkey'].map((name, at) => `${name}=${files[at] ?? ''}`);
    const at = (...given: string[]): ReturnType<typeof tlsOptions> =>
      tlsOptions(parseStateUrl(`postgres://db.example.com/d?${given.join('&')}`));
    expect(at(...names)).toEqual({ rejectUnauthorized: true, ca, cert, key });
    expect(at(...names.slice(1))).toEqual({ rejectUnauthorized: true, cert, key });
    const here = parseStateUrl(`postgres://localhost/d?${names[0] ?? ''}`);
    expect(tlsOptions(here)).toEqual({ rejectUnauthorized: true, ca });
  });

  it('does not fall back to plain text if the server has no TLS', async () => {
    const { port, sent } = await listen((socket) => socket.write('N'));
    vi.stubEnv('PGSSLMODE', 'disable');
    await expect(ask(`postgres://mgw:hunter2@127.0.0.1:${port}/d?sslmode=require`)).rejects.toMatchObject({
      exitCode: 2,
      message: expect.stringContaining('does not support SSL') as string,
    });
    expect(sent()).not.toContain('hunter2');
  });

  const lastMonth = { notBefore: new Date(Date.now() - 31 * dayMs), notAfter: new Date(Date.now() - dayMs) };
  it.each<[string, 'verify-full' | 'no-verify', boolean, (own: Authority) => Certificate]>([
    ['for its address', 'verify-full', true, (own) => own.issue({ hosts: ['127.0.0.1'] })],
    [
      'for a different name',
      'verify-full',
      false,
      (own) => own.issue({ hosts: ['localhost', 'db.example'] }),
    ],
    ['that has expired', 'verify-full', false, (own) => own.issue({ hosts: ['127.0.0.1'], ...lastMonth })],
    ['that is self-signed', 'verify-full', false, () => selfSigned({ hosts: ['127.0.0.1'] })],
    ['that is self-signed', 'no-verify', true, () => selfSigned({ hosts: ['127.0.0.1'] })],
  ])('accepts a certificate %s with sslmode=%s: %s', async (_, mode, isTrusted, make) => {
    vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', isTrusted ? '1' : '0');
    const [authority, ca] = [newAuthority(), join(freshFolder(), 'ca.pem')];
    writeFileSync(ca, authority.cert);
    const secureContext = createSecureContext(make(authority));
    const { port, sent } = await listen((socket) => {
      socket.removeAllListeners('data').write('S');
      const secure = new TLSSocket(socket, { isServer: true, secureContext });
      secure.on('error', () => undefined).once('data', () => secure.end(fatal));
    });
    const address = `postgres://mgw@127.0.0.1:${port}/d?sslmode=${mode}&sslrootcert=${ca}`;
    await expect(ask(address)).rejects.toMatchObject({
      exitCode: 2,
      message: expect.stringMatching(isTrusted ? /not today/ : /certificate/) as string,
    });
    expect(sent()).toHaveLength(8);
  });

  it('suggests PGPASSWORD if the server requires a password but none is set', async () => {
    vi.stubEnv('PGPASSWORD', undefined);
    vi.stubEnv('PGPASSFILE', '/nowhere/pgpass');
    const { port } = await listen(asksForPassword);
    await expect(ask(`postgres://mgw@127.0.0.1:${port}/d`)).rejects.toMatchObject({
      exitCode: 2,
      message: expect.stringContaining('but none was set. Set PGPASSWORD') as string,
    });
  });

  it('uses the password in ~/.pgpass without a warning', async () => {
    const { port, sent } = await listen(asksForPassword);
    const user = newUser('http://127.0.0.1:9', { MGW_STATE: `postgres://mgw@127.0.0.1:${port}/d` });
    writeFileSync(join(user.cwd, '.pgpass'), `127.0.0.1:${port}:*:mgw:hunter2\n`, { mode: 0o600 });
    const { stderr } = await user.run(['jobs', 'ls']);
    expect(sent()).toContain(',p=');
    expect(stderr).toMatch(/^mgw: .* requires a password: refused\./);
  });

  it('does not send a password in plain text outside TLS', async () => {
    const { port, sent } = await listen((socket) => socket.write(authentication(3)));
    await expect(ask(`postgres://mgw:hunter2@127.0.0.1:${port}/d`)).rejects.toMatchObject({
      exitCode: 2,
      message: expect.stringContaining('in clear') as string,
    });
    expect(sent()).toContain('mgw');
    expect(sent()).not.toContain('hunter2');
  });

  it('sends a password in plain text inside TLS', async () => {
    const [authority, ca] = [newAuthority(), join(freshFolder(), 'ca.pem')];
    writeFileSync(ca, authority.cert);
    const secureContext = createSecureContext(authority.issue({ hosts: ['127.0.0.1'] }));
    let received = '';
    const { port } = await listen((socket) => {
      socket.removeAllListeners('data').write('S');
      const secure = new TLSSocket(socket, { isServer: true, secureContext });
      secure
        .on('error', () => undefined)
        .on('data', (bytes: Buffer) => {
          received += bytes.toString('latin1');
          if (received.includes('hunter2')) secure.end(fatal);
          else secure.write(authentication(3));
        });
    });
    const address = `postgres://mgw:hunter2@127.0.0.1:${port}/d?sslrootcert=${ca}`;
    await expect(ask(address)).rejects.toThrow('not today');
    expect(received).toContain('hunter2');
  });
});

it('an unavailable or refusing database is not reported as a pool that breaks transactions', async () => {
  const unreachable = new Database(parseStateUrl(`postgres://127.0.0.1:${await closedPort()}/d`));
  await expect(unreachable.supportsTransactions()).rejects.toBeInstanceOf(DatabaseLost);
  const { port } = await listen((socket) => socket.write(authentication(3)));
  const refusing = new Database(parseStateUrl(`postgres://mgw:hunter2@127.0.0.1:${port}/d`));
  await expect(refusing.supportsTransactions()).rejects.toMatchObject({ code: 'config' });
  await Promise.all([unreachable.close(), refusing.close()]);
  // The second call has nothing to close.
  await unreachable.close();
});

const dayMs = 86_400_000;

// A server response that ends the connection.
const fatal = message('E', 'SFATAL\0C28000\0Mnot today\0\0');

async function ask(address: string): Promise<unknown> {
  const database = new Database(parseStateUrl(address));
  onEnd(() => database.close());
  return database.query('SELECT');
}

// Requests a password by SCRAM, and refuses every password.
function asksForPassword(socket: Socket, text: string): void {
  const [, proof, nonce] = /(,p=)|r=([^,]+)$/.exec(text) ?? [];
  if (proof !== undefined) socket.write('E\0\0\0\x1cSFATAL\0C28P01\0Mrefused\0\0', 'latin1');
  else if (nonce === undefined) socket.write(authentication(10, 'SCRAM-SHA-256\0\0'));
  else socket.write(authentication(11, `r=${nonce}x,s=c2FsdA==,i=4096`));
}

function authentication(kind: number, text = ''): Buffer {
  return message('R', `\0\0\0${String.fromCharCode(kind)}${text}`);
}

function message(type: string, text: string): Buffer {
  const length = Buffer.alloc(4);
  length.writeInt32BE(4 + text.length);
  return Buffer.concat([Buffer.from(type), length, Buffer.from(text)]);
}

// Starts a server that answers each message.
async function listen(
  answer: (socket: Socket, text: string) => void,
): Promise<{ port: number; sent: () => string }> {
  let received = '';
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('data', (bytes) => {
      received += bytes.toString('latin1');
      answer(socket, bytes.toString('latin1'));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onEnd(
    () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  );
  return { port: (server.address() as AddressInfo).port, sent: () => received };
}
