import { expect, it } from 'vitest';
import { isLoopbackHost } from '../src/exchange.ts';

const hostOf = (host: string): string => new URL(`http://${host}`).hostname;

it.each([
  'localhost',
  'LOCALHOST:80',
  '127.0.0.1',
  '127.1',
  '0x7f000001',
  '2130706433',
  '127.255.255.254',
  '[::1]',
  '[0:0:0:0:0:0:0:1]',
])('mgw treats the host %s as loopback', (host) => {
  expect(isLoopbackHost(hostOf(host))).toBe(true);
});

it.each([
  '127.example.com',
  '127.0.0.1.example.com',
  'localhost.example.com',
  '128.0.0.1',
  '0.0.0.0',
  '10.0.0.1',
  '[::]',
  '[::2]',
])('mgw does not treat the host %s as loopback', (host) => {
  expect(isLoopbackHost(hostOf(host))).toBe(false);
});
