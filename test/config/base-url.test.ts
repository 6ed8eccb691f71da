import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseBaseUrl, parseOrigin } from '../../src/config/base-url.ts';

describe('parseBaseUrl', () => {
  it.each([
    ['https://gateway.example.com', 'https://gateway.example.com'],
    ['https://Gateway.Example.com:443/', 'https://gateway.example.com'],
    ['https://gateway.example.com:8443//', 'https://gateway.example.com:8443'],
    ['https://proxy.example.com/media/', 'https://proxy.example.com/media'],
    ['https://proxy.example.com/v12', 'https://proxy.example.com/v12'],
    ['http://127.0.0.1:8080', 'http://127.0.0.1:8080'],
    ['http://localhost:8080/', 'http://localhost:8080'],
    ['http://[::1]:8080', 'http://[::1]:8080'],
  ])('accepts %s', (text, url) => {
    expect(parseBaseUrl(text, false)).toBe(url);
    expect(parseBaseUrl(url, false)).toBe(url);
  });

  it.each([
    ['https://h/v1', /without \/v1/],
    ['https://h/v1/', /without \/v1/],
    ['https://h/v1/models', /without \/v1/],
    ['https://h/prefix/v1', /without \/v1/],
    ['https://h/v1beta', /without \/v1beta/],
    ['https://h/api/v3/tts', /without \/api\/v3/],
    ['https://h?a=1', /without a query/],
    ['https://h/?', /without a query/],
    ['https://h/#', /without a query or a fragment/],
    ['https://user:sesame@h', /without a user name/],
    ['https://@h', /without a user name/],
    ['http://gateway.example.com', /an https:\/\/ address/],
    ['http://127.example.com', /an https:\/\/ address/],
    ['http://10.0.0.1', /an https:\/\/ address/],
    ['gateway.example.com', /an address such as/],
    ['localhost:8080', /an address such as/],
    ['ftp://h', /an address such as/],
    ['https:h', /an address such as/],
    ['https:///h', /an address such as/],
    ['https://h\\v', /an address such as/],
    [' https://h', /without white space or control characters/],
    ['https://h\n', /without white space .*is there a line break at its end/],
    ['https://h\0', /without white space or control characters/],
    ['https://h \\v', /an address such as/],
    ['https://', /an address such as/],
    ['', /an address such as/],
  ])('refuses %j', (text, why) => {
    expect(() => parseBaseUrl(text, false)).toThrow(why);
    expect(() => parseBaseUrl(text, false)).not.toThrow(/sesame/);
  });

  it('accepts http:// for any host if it is allowed', () => {
    expect(parseBaseUrl('http://10.0.0.1', true)).toBe('http://10.0.0.1');
  });

  const start = fc.constantFrom('https://h', 'https://u:p@h', 'http://127.0.0.1:8', 'https:/', '');
  const piece = fc.constantFrom('x', '/', '/v1', '/v1beta', '..', '%2f', '?', '#', '@', '\\');
  const address = fc.tuple(start, fc.array(piece)).map(([from, pieces]) => from + pieces.join(''));

  it('returns a URL without a path, query, fragment or credentials, or throws an Error', () => {
    fc.assert(
      fc.property(fc.oneof(address, fc.string()), (text) => {
        let url: URL;
        try {
          url = new URL(parseBaseUrl(text, true));
        } catch (error) {
          expect(String(error)).toMatch(/^Error: an (https:\/\/ )?address/);
          return;
        }
        expect([url.search, url.hash, url.username, url.password]).toEqual(['', '', '', '']);
        expect(url.pathname).not.toMatch(/\/(v1|v1beta)(\/|$)/);
      }),
    );
  });
});

describe('parseOrigin', () => {
  it('accepts an origin in its normalized form', () => {
    expect(parseOrigin('https://Files.example.com:443/', false)).toBe('https://files.example.com');
    expect(parseOrigin('http://127.0.0.1:9', false)).toBe('http://127.0.0.1:9');
    expect(parseOrigin('http://files.example.com', true)).toBe('http://files.example.com');
  });

  it.each([
    'https://h/path',
    'https://u:p@h',
    'https://h?x',
    '*',
    'h',
    'file:///etc',
    'http://h',
    '',
    'https://*.h\\',
  ])('refuses %j', (text) => {
    expect(() => parseOrigin(text, false)).toThrow(/^an (https:\/\/ )?origin/);
  });
});
