import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { shownValue, violationMessage } from '../../src/protocols/violations.ts';
import { anyCharacter } from '../support/any-character.ts';

describe('shownValue', () => {
  it.each([
    [undefined, ''],
    [null, 'null'],
    [4, '4'],
    [Number.NaN, 'NaN'],
    [true, 'true'],
    ['2K', '2K'],
    ['two words', 'two words'],
    ['', '""'],
    ['5', '"5"'],
    ['-4.5', '"-4.5"'],
    ['null', '"null"'],
    [' 5', '" 5"'],
    [[1, 2], 'a list of 2'],
    [{ a: 1 }, 'an object'],
    ['a\u001b[31mb\n', '"a\\u{1b}[31mb\\u{a}"'],
    ['\u202egnp', '\\u{202e}gnp'],
    ['\u2028\ud800', '"\\u{2028}\\u{d800}"'],
    ['https://me:secret@example.com/a', 'https://***@example.com/a'],
    ['x'.repeat(61), `${'x'.repeat(59)}…`],
    ['😀'.repeat(40), `${'😀'.repeat(29)}…`],
  ])('formats %j as %s', (value, shown) => {
    expect(shownValue(value)).toBe(shown);
  });

  it('returns short, printable text for any value', () => {
    fc.assert(
      fc.property(fc.anything(), (value) => {
        const shown = shownValue(value);
        expect(shown.length).toBeLessThanOrEqual(60);
        expect(shown).not.toMatch(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u);
      }),
      { numRuns: 50 },
    );
    fc.assert(
      fc.property(fc.string({ unit: anyCharacter, maxLength: 200 }), (value) => {
        expect(shownValue(value)).toMatch(/^[^\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]{0,60}$/u);
      }),
    );
  });
});

describe('violationMessage', () => {
  const duration = { field: 'duration', value: '4', allowed: '5 to 15 seconds', flag: '--duration' };

  it('includes the flag, the value, the model and the allowed values', () => {
    expect(violationMessage([duration], 'vendor-h3-mini')).toBe(
      '--duration: 4 is not allowed for vendor-h3-mini; allowed: 5 to 15 seconds',
    );
    expect(violationMessage([duration])).toBe('--duration: 4 is not allowed; allowed: 5 to 15 seconds');
  });

  it('includes the field if no flag sets the field, and reports a missing value', () => {
    const missing = { field: 'last_frame_image_url', value: '', allowed: 'a URL', flag: '--last-frame' };
    const bare = { field: 'seconds', value: '4', allowed: '5 to 15' };
    expect(violationMessage([missing, bare])).toBe(
      '--last-frame (last_frame_image_url): missing; needed: a URL\nseconds: 4 is not allowed; allowed: 5 to 15',
    );
  });

  it('does not include the model in a violation of the model itself', () => {
    const model = { field: 'ModelName', value: 'video-b', allowed: 'Video-B', flag: '--model' };
    expect(violationMessage([model], 'video-b')).toBe(
      '--model (ModelName): video-b is not allowed; allowed: Video-B',
    );
  });
});
