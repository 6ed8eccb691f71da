import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { checkKey, keyOfFile } from '../../src/config/key.ts';
import { anyCharacter } from '../support/any-character.ts';

describe('checkKey', () => {
  it.each(['sk-abc', 'k', 'AKIA/+=_-.~:;,!$%&*()[]{}|<>?@^#'])('takes %s', (key) => {
    expect(checkKey(key)).toBe(key);
  });

  it.each([
    ['', /empty/],
    ['  \n', /empty/],
    ['Bearer secretword', /begins with "Bearer "/],
    ['bearer\tsecretword', /begins with "Bearer "/],
    ['"secretword"', /quotes/],
    ["'secretword'", /quotes/],
    ['“secretword”', /quotes/],
    ['secretword\n', /line break/],
    ['secret\0word', /control character/],
    ['\u{feff}secretword', /control character/],
    ['secret word', /white space/],
    ['secretwörd', /not ASCII/],
    [`secretword${'x'.repeat(5000)}`, /longer/],
  ])('refuses %j without echoing it', (key, why) => {
    expect(() => checkKey(key)).toThrow(why);
    expect(() => checkKey(key)).not.toThrow(/secret|w[oö]rd/);
  });

  it('takes visible ASCII without quotes only', () => {
    fc.assert(
      fc.property(fc.string({ unit: anyCharacter }), (key) => {
        let taken = true;
        try {
          checkKey(key);
        } catch {
          taken = false;
        }
        expect(taken).toBe(/^[\x21\x23-\x26\x28-\x5f\x61-\x7e]+$/.test(key));
      }),
    );
  });
});

describe('keyOfFile', () => {
  it('leaves one line break at the end out, and nothing else', () => {
    expect(keyOfFile('sk-1\n')).toBe('sk-1');
    expect(keyOfFile('sk-1\r\n')).toBe('sk-1');
    expect(keyOfFile('sk-1')).toBe('sk-1');
    expect(keyOfFile('sk-1\n\n')).toBe('sk-1\n');
    expect(keyOfFile('sk-1 ')).toBe('sk-1 ');
  });
});
