import { createServer, type Socket } from 'node:net';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { tlsOptions } from '../../../src/ledger/postgres/connection.ts';
import { Database } from '../../../src/ledger/postgres/database.ts';
import { parseStateUrl } from '../../../src/state-url.ts';
import { onEnd } from '../../support/clean-ups.ts';

describe('TLS to the database', () => {
  afterEach(() => vi.unstubAllEnvs());

  it.each([
    ['postgres://db.example.com/d', true],
    ['postgres://db.example.com/d?sslmode=require', true],
    ['postgres://localhost/d?host=db.example.com', true],
    ['postgres://db.example.com/d?host=localhost&host=db.example.com', true],
    ['postgres://127.0.0.1.example.com/d', true],
    ['postgres://127.0.0.1/d?sslmode=verify-full', true],
    ['postgres://db.example.com/d?sslmode=no-verify', false],
  ])('%s: verified %s', (address, rejectUnauthorized) => {
    expect(tlsOptions(parseStateUrl(address))).toEqual({ rejectUnauthorized });
  });

  it.each([
    'postgres://localhost/d',
    'postgres://127.0.0.1:6432/d',
    'postgres://[::1]/d',
    'postgres://%2Fvar%2Frun/d',
    'postgres://db.example.com/d?sslmode=disable',
  ])('%s: none', (address) => {
    expect(tlsOptions(parseStateUrl(address))).toBe(false);
  });

  it('follows PGHOST if the address names no host', () => {
    expect(tlsOptions(parseStateUrl('postgres:///d'), 'db.example.com')).toEqual({
      rejectUnauthorized: true,
    });
    expect(tlsOptions(parseStateUrl('postgres:///d'), '/run/postgresql')).toBe(false);
  });

  it('says which file of certificates it cannot read', () => {
    const url = parseStateUrl('postgres://db/d?sslrootcert=/nowhere/ca.pem');
    expect(() => tlsOptions(url)).toThrow('/nowhere/ca.pem');
  });

  it('does not go on in clear if the server has no TLS', async () => {
    const { port, sent } = await listen((socket) => socket.write('N'));
    vi.stubEnv('PGSSLMODE', 'disable');
    await expect(ask(`postgres://mgw:hunter2@127.0.0.1:${port}/d?sslmode=require`)).rejects.toMatchObject({
      exitCode: 2,
      message: expect.stringContaining('does not support SSL') as string,
    });
    expect(sent()).not.toContain('hunter2');
  });

  it('sends no password in clear', async () => {
    const askForPassword = Buffer.from([0x52, 0, 0, 0, 8, 0, 0, 0, 3]);
    const { port, sent } = await listen((socket) => socket.write(askForPassword));
    await expect(ask(`postgres://mgw:hunter2@127.0.0.1:${port}/d`)).rejects.toMatchObject({
      exitCode: 2,
      message: expect.stringContaining('in clear') as string,
    });
    expect(sent()).toContain('mgw');
    expect(sent()).not.toContain('hunter2');
  });
});

async function ask(address: string): Promise<unknown> {
  const database = new Database(parseStateUrl(address));
  onEnd(() => database.close());
  return database.query('SELECT');
}

// A server that answers the first message alone.
async function listen(answer: (socket: Socket) => void): Promise<{ port: number; sent: () => string }> {
  let received = '';
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => answer(socket));
    socket.on('data', (bytes) => (received += bytes.toString('latin1')));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onEnd(() => new Promise<void>((resolve) => server.close(() => resolve())));
  return { port: (server.address() as AddressInfo).port, sent: () => received };
}
