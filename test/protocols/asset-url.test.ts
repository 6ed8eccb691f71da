import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { checkAssetUrl } from '../../src/protocols/body-schema.ts';
import { anyCharacter } from '../support/any-character.ts';

const notHttp = 'is not an http:// or https:// URL';
const unclean = 'contains white space, a control character or a backslash';
const isPrivate = 'points to a private network';

describe('checkAssetUrl', () => {
  it.each([
    'https://cdn.example.com/a.png',
    'http://cdn.example.com:8080/a.png?x=1&y=%20#z',
    'HTTPS://CDN.EXAMPLE.COM/A.PNG',
    'https://例え.example.com/图.png',
    'https://8.8.8.8/a.png',
    'https://[2606:4700::1111]/a.png',
    'https://example.com/?to=http://127.0.0.1/@x',
  ])('accepts %s', (url) => {
    expect(checkAssetUrl(url)).toBeUndefined();
  });

  it.each([
    ['', notHttp],
    ['file:///etc/passwd', notHttp],
    ['data:image/png;base64,AAAA', notHttp],
    ['ftp://example.com/a.png', notHttp],
    ['//example.com/a.png', notHttp],
    ['example.com/a.png', notHttp],
    ['http:example.com/a.png', notHttp],
    [' https://example.com/a.png', notHttp],
    ['https://example.com/a.png ', unclean],
    ['https://example.com/a b.png', unclean],
    ['https://example.com/a.png\n', unclean],
    ['https://exam\tple.com/a.png', unclean],
    ['https://example.com/\u0000', unclean],
    ['https://example.com/\u202egnp.a', unclean],
    ['https://example.com\\@127.0.0.1/', unclean],
    ['https://', 'is not a valid URL'],
    ['https://example.com:99999/', 'is not a valid URL'],
    ['https://user@example.com/a.png', 'contains a user name or password'],
    ['https://user:secret@example.com/a.png', 'contains a user name or password'],
    ['http://localhost/a.png', isPrivate],
    ['http://LOCALHOST:3000/a.png', isPrivate],
    ['http://a.localhost./a.png', isPrivate],
    ['http://nas.local/a.png', isPrivate],
    ['http://metadata.google.internal/a.png', isPrivate],
    ['http://minio:9000/a.png', isPrivate],
    ['http://127.0.0.1/a.png', isPrivate],
    ['http://127.1/a.png', isPrivate],
    ['http://2130706433/a.png', isPrivate],
    ['http://0x7f000001/a.png', isPrivate],
    ['http://0177.0.0.1/a.png', isPrivate],
    ['http://%31%32%37.0.0.1/a.png', isPrivate],
    ['http://169.254.169.254/latest', isPrivate],
    ['http://10.0.0.1/a.png', isPrivate],
    ['http://192.168.1.1/a.png', isPrivate],
    ['http://[::1]/a.png', isPrivate],
    ['http://[::ffff:127.0.0.1]/a.png', isPrivate],
    ['http://[fe80::1]/a.png', isPrivate],
    ['http://[fd00::1]/a.png', isPrivate],
  ])('refuses %j with the error: %s', (url, problem) => {
    expect(checkAssetUrl(url)).toBe(problem);
  });

  it('refuses every spelling of a private IPv4 address without throwing', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 0xffffff }), (low) => {
        const decimal = 10 * 2 ** 24 + low;
        for (const host of [
          decimal,
          `0x${decimal.toString(16)}`,
          `10.${low}`,
          `[::ffff:a${hex(low >> 16)}:${(low & 0xffff).toString(16)}]`,
        ])
          expect(checkAssetUrl(`http://${host}/`)).toBe(isPrivate);
      }),
      { numRuns: 30 },
    );
    fc.assert(fc.property(fc.string({ unit: anyCharacter }), (text) => void checkAssetUrl(`http://${text}`)));
  });
});

function hex(byte: number): string {
  return byte.toString(16).padStart(2, '0');
}
