import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { redactHeaders, redactor, secretRedactor } from '../src/redact.ts';
import { anyCharacter } from './support/any-character.ts';

const key = 'sk-Ab3+/x_9-ZqY7"kLm';
const visible = Array.from({ length: 94 }, (_, n) => String.fromCharCode(33 + n));
/** Texts that look like escape sequences, or that are escape sequences for invisible characters. */
const escapes = ['%7f', '%20', '%25', '%41', '\\u007f', '\\x20', '\\\\', '&#127;', '&#x20;', '&amp;'];
const keyText = fc.string({ unit: fc.constantFrom(...visible, ...escapes), minLength: 12, maxLength: 60 });

const spellings: Record<string, (secret: string) => string> = {
  plain: (secret) => secret,
  'percent-encoded': encodeURIComponent,
  'percent-encoded in full': (secret) =>
    Array.from(Buffer.from(secret), (byte) => `%${byte.toString(16).padStart(2, '0')}`).join(''),
  'percent-encoded twice': (secret) => encodeURIComponent(encodeURIComponent(secret)),
  JSON: (secret) => JSON.stringify(secret).slice(1, -1),
  'JSON in JSON': (secret) => JSON.stringify(JSON.stringify(secret).slice(1, -1)).slice(1, -1),
  'JSON with escaped slashes': (secret) => JSON.stringify(secret).slice(1, -1).replaceAll('/', '\\/'),
  'JSON in escapes': (secret) =>
    Array.from(Buffer.from(secret), (byte) => `\\u${byte.toString(16).padStart(4, '0')}`).join(''),
  'JavaScript in escapes': (secret) =>
    Array.from(Buffer.from(secret), (byte) => `\\x${byte.toString(16).padStart(2, '0')}`).join(''),
  'HTML in names': (secret) => secret.replace(/[&<>"'+/=_-]/g, (sign) => entities[sign] ?? sign),
  'HTML in numbers': (secret) => Array.from(Buffer.from(secret), (byte) => `&#${byte};`).join(''),
  'HTML in hexadecimal numbers': (secret) =>
    Array.from(Buffer.from(secret), (byte) => `&#X00${byte.toString(16)};`).join(''),
  'HTML in HTML': (secret) => Array.from(Buffer.from(secret), (byte) => `&amp;amp;#0${byte};`).join(''),
  'HTML in JSON of Go': (secret) => Array.from(Buffer.from(secret), (byte) => `\\u0026#${byte};`).join(''),
  'HTML in an address': (secret) =>
    encodeURIComponent(Array.from(Buffer.from(secret), (byte) => `&#x${byte.toString(16)};`).join('')),
  'an address in HTML in JSON': (secret) =>
    encodeURIComponent(secret).replaceAll('%', '&percnt;').replaceAll('&', '\\u0026'),
  hex: (secret) => Buffer.from(secret).toString('hex'),
  'HEX in capitals': (secret) => Buffer.from(secret).toString('hex').toUpperCase(),
};

const entities: Record<string, string> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&QUOT;',
  "'": '&#39;',
  '+': '&plus;',
  '/': '&sol;',
  '=': '&equals;',
  _: '&lowbar;',
};

/** Whether any Base64 part of the text decodes to text that contains the secret. */
function holdsInBase64(text: string, secret: string): boolean {
  const runs = text.match(/[\w+/-]+={0,2}/g) ?? [];
  return runs.some((run) => Buffer.from(run, 'base64').toString('latin1').includes(secret));
}

describe('secretRedactor', () => {
  it.each(Object.keys(spellings))('hides a key that is written in the spelling: %s', (name) => {
    const spell = spellings[name] as (secret: string) => string;
    fc.assert(
      fc.property(keyText, fc.string(), fc.string(), (secret, before, after) => {
        const shown = secretRedactor([secret])(`${before} ${spell(secret)} ${after}`);
        expect(shown).toContain('[redacted]');
        expect(shown).not.toContain(spell(secret));
      }),
      { numRuns: 30 },
    );
  });

  it('hides a key whose characters are escaped in different ways, even with nested escapes', () => {
    const ways = ['JSON in escapes', 'HTML in numbers', 'percent-encoded in full', 'plain'] as const;
    const letters = fc.constantFrom(...Array.from('abcXYZ0189+/=_.:-'));
    const character = fc.tuple(letters, fc.array(fc.constantFrom(...ways), { maxLength: 3 }));
    fc.assert(
      fc.property(fc.array(character, { minLength: 12, maxLength: 40 }), (characters) => {
        const secret = characters.map(([letter]) => letter).join('');
        const spelt = characters.map(([letter, chain]) =>
          chain.reduce((text, way) => spellings[way]?.(text) ?? '', letter),
        );
        expect(secretRedactor([secret])(`{"a":"\\"<${spelt.join('')}>"}`)).toBe('{"a":"\\"<[redacted]>"}');
      }),
      { numRuns: 30 },
    );
  });

  it('hides an escaped hexadecimal or Base64 form of the key', () => {
    for (const encoding of ['hex', 'base64'] as const) {
      const encoded = Buffer.from(key).toString(encoding);
      expect(secretRedactor([key])(spellings['HTML in numbers']?.(encoded) ?? '')).toContain('[redacted]');
    }
  });

  it.each(['base64', 'base64url'] as const)('hides a key inside %s at any alignment', (encoding) => {
    fc.assert(
      fc.property(keyText, fc.string({ maxLength: 9 }), fc.string(), (secret, before, after) => {
        const encoded = Buffer.from(`${before}${secret}${after}`).toString(encoding);
        expect(holdsInBase64(encoded, secret)).toBe(true);
        const shown = secretRedactor([secret])(encoded);
        expect(shown).toContain('[redacted]');
        expect(holdsInBase64(shown, secret)).toBe(false);
      }),
      { numRuns: 50 },
    );
  });

  it('hides a key without its sk- prefix, in every spelling', () => {
    const bare = key.slice(3);
    for (const spell of Object.values(spellings))
      expect(secretRedactor([key])(`x ${spell(bare)} y`)).toBe('x [redacted] y');
  });

  it('hides each of several keys, even if one key is the start of another', () => {
    const hide = secretRedactor(['sk-abcdefgh', 'sk-abcdefghijkl', '']);
    expect(hide('sk-abcdefghijkl sk-abcdefgh')).toBe('[redacted] [redacted]');
  });

  it('does not change text without the key', () => {
    const [hide, hideNothing] = [secretRedactor([key]), secretRedactor([])];
    fc.assert(
      fc.property(fc.string({ unit: anyCharacter }), (text) => {
        expect(hide(text)).toBe(text);
        expect(hideNothing(text)).toBe(text);
      }),
    );
    const answer = '{"url":"https://files.example/v.mp4?X-Amz-Signature=abc&key=1"}';
    expect(secretRedactor([key])(answer)).toBe(answer);
  });

  it('replaces a short secret only as a complete word', () => {
    const hide = secretRedactor(['key1']);
    expect(hide('key1, "key1" and Bearer key1')).toBe('[redacted], "[redacted]" and Bearer [redacted]');
    expect(hide('monkey1 key12 task-key1')).toBe('monkey1 key12 task-key1');
  });

  it('takes no longer if a key contains backslashes', () => {
    const secret = '\\'.repeat(40);
    expect(secretRedactor([secret])(secret)).toBe('[redacted]');
    expect(secretRedactor([`${secret}end`])('\\'.repeat(5000))).toBe('\\'.repeat(5000));
  });

  it('treats every character of a key literally', () => {
    const hide = secretRedactor(['.*+?^${}()|[]\\-']);
    expect(hide('anything else')).toBe('anything else');
    expect(hide('<.*+?^${}()|[]\\->')).toBe('<[redacted]>');
  });
});

describe('redactor', () => {
  const hide = redactor([key]);

  it.each([
    ['GET https://h/v?a=1&sig=abc%2F&b=2', 'GET https://h/v?a=1&sig=[redacted]&b=2'],
    ['https://h/v?X-Amz-Signature=0ab&X-Amz-Date=1', 'https://h/v?X-Amz-Signature=[redacted]&X-Amz-Date=1'],
    ['https://h/v?access=tok"', 'https://h/v?access=[redacted]"'],
    ['https://h/v?token=tok#top', 'https://h/v?token=[redacted]#top'],
    ['https://h/v?key=AIza&alt=media', 'https://h/v?key=[redacted]&alt=media'],
    [
      '{"u":"https://h/v?a=1\\u0026Signature=xyz\\u0026b=2"}',
      '{"u":"https://h/v?a=1\\u0026Signature=[redacted]\\u0026b=2"}',
    ],
    ['https://h/v?a=1&amp;q-signature=xyz', 'https://h/v?a=1&amp;q-signature=[redacted]'],
    ['Authorization: Bearer other-key', 'Authorization: [redacted]'],
    ["curl -H 'authorization: Bearer other-key' https://h", "curl -H 'authorization: [redacted]' https://h"],
    ['X-Api-Key: other\r\nHost: h', 'X-Api-Key: [redacted]\r\nHost: h'],
    ['{"authorization":"Bearer other"}', '{"authorization":"[redacted]"}'],
    ['proxy http://user:pass@proxy:8080/', 'proxy http://[redacted]@proxy:8080/'],
    ['TokenStatusExhausted[sk-abc***xyz]', 'TokenStatusExhausted[[redacted]]'],
    ['task key=1 and sig=2 in prose', 'task key=1 and sig=2 in prose'],
    ['https://h/v?monkey=1&design=2', 'https://h/v?monkey=1&design=2'],
    [`the key ${key} is refused`, 'the key [redacted] is refused'],
  ])('redacts %j as %j', (text, shown) => {
    expect(hide(text)).toBe(shown);
    expect(hide(hide(text))).toBe(shown);
  });

  it('takes linear time on hostile text', () => {
    for (const part of ['a.', '&a', '?sig', 'a://', 'authorization ', 'sk-a*'])
      expect(hide(part.repeat(200_000)).length).toBeGreaterThan(0);
  });
});

describe('redactHeaders', () => {
  it('does not hide a header that only contains a token count', () => {
    const headers = { 'x-control-require-usage-tokens-return': '*', 'x-token': 'secret' };
    expect(redactHeaders(headers)).toEqual({ ...headers, 'x-token': '[redacted]' });
  });

  it('hides only headers with credentials', () => {
    const headers = {
      Authorization: 'Bearer sk-1',
      'X-Api-Key': 'sk-1',
      'Proxy-Authorization': 'Basic dTpw',
      'X-TC-Action': 'DescribeTaskDetail',
      'X-Vendor': 'sk-1',
    };
    expect(redactHeaders(headers, ['x-vendor'])).toEqual({
      Authorization: 'Bearer [redacted]',
      'X-Api-Key': '[redacted]',
      'Proxy-Authorization': 'Basic [redacted]',
      'X-TC-Action': 'DescribeTaskDetail',
      'X-Vendor': '[redacted]',
    });
  });
});
