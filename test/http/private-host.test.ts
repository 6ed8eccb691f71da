import { describe, expect, it } from 'vitest';
import { isPrivateAddress, isPrivateHost } from '../../src/http/private-host.ts';

describe('isPrivateAddress', () => {
  it.each([
    '0.0.0.0',
    '10.255.255.255',
    '100.64.0.1',
    '100.127.255.255',
    '127.0.0.1',
    '127.255.255.254',
    '169.254.169.254',
    '172.16.0.1',
    '172.31.255.255',
    '192.168.0.1',
    '198.19.0.1',
    '224.0.0.1',
    '255.255.255.255',
    '::',
    '::1',
    '0:0:0:0:0:0:0:1',
    'fe80::1%eth0',
    'fd12:3456::1',
    'ff02::1',
    '::ffff:127.0.0.1',
    '::ffff:7f00:1',
    '::FFFF:10.0.0.1',
    '::127.0.0.1',
    '64:ff9b::192.168.0.1',
    '2002:c0a8:1::1',
  ])('is true for %s', (address) => {
    expect(isPrivateAddress(address)).toBe(true);
  });

  it.each([
    '1.1.1.1',
    '9.255.255.255',
    '11.0.0.0',
    '100.63.255.255',
    '100.128.0.0',
    '126.255.255.255',
    '128.0.0.1',
    '169.253.255.255',
    '172.15.255.255',
    '172.32.0.0',
    '192.167.255.255',
    '223.255.255.255',
    '2606:4700::1111',
    '::ffff:1.1.1.1',
    '64:ff9b::8.8.8.8',
    '2002:808:808::1',
    'not an address',
  ])('is false for %s', (address) => {
    expect(isPrivateAddress(address)).toBe(false);
  });
});

describe('isPrivateHost', () => {
  it.each([
    'localhost',
    'localhost.',
    'a.localhost',
    'printer.local',
    'x.internal',
    'minio',
    'nas.home.arpa',
    '[::1]',
  ])('is true for %s', (host) => {
    expect(isPrivateHost(host)).toBe(true);
  });

  it.each([
    'example.com',
    'example.com.',
    'local.example.com',
    'notlocalhost.com',
    'internal.io',
    '[2606:4700::1111]',
  ])('is false for %s', (host) => {
    expect(isPrivateHost(host)).toBe(false);
  });
});
