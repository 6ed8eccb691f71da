import { describe, expect, it } from 'vitest';
import { reachOf, type Reach } from '../../src/http/reach.ts';

const hosts: Record<Reach, string[]> = {
  public: [
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
    '[2606:4700::1111]',
    '::ffff:1.1.1.1',
    '64:ff9b::8.8.8.8',
    '2002:808:808::1',
    'example.com',
    'example.com.',
    'local.example.com',
    'notlocalhost.com',
    'internal.io',
  ],
  private: [
    '10.255.255.255',
    '100.64.0.1',
    '100.127.255.255',
    '172.16.0.1',
    '172.31.255.255',
    '192.168.0.1',
    'fd12:3456::1',
    '[fd12:3456::1]',
    'printer.local',
    'x.internal',
    'minio',
    'nas.home.arpa',
  ],
  loopback: [
    '127.0.0.1',
    '127.255.255.254',
    '::1',
    '[::1]',
    '0:0:0:0:0:0:0:1',
    'localhost',
    'localhost.',
    'a.localhost',
  ],
  never: [
    '0.0.0.0',
    '169.254.169.254',
    '192.0.2.1',
    '198.19.0.1',
    '224.0.0.1',
    '255.255.255.255',
    '::',
    'fe80::1%eth0',
    'fec0::1',
    'ff02::1',
    '::ffff:127.0.0.1',
    '::ffff:7f00:1',
    '::FFFF:10.0.0.1',
    '::127.0.0.1',
    '64:ff9b::192.168.0.1',
    '64:ff9b:1::8.8.8.8',
    '2002:c0a8:1::1',
  ],
};

describe('reachOf', () => {
  it.each(Object.entries(hosts).flatMap(([reach, all]) => all.map((host) => [host, reach])))(
    'classifies %s as %s',
    (host, reach) => {
      expect(reachOf(host)).toBe(reach);
    },
  );
});
