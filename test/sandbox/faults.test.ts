import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { FAULTS } from '../../src/sandbox/fault-catalogue.ts';
import { FaultSyntaxError, forgetFaults, parseFaults, takeFault } from '../../src/sandbox/faults.ts';
import { freshState } from './harness.ts';

describe('the syntax', () => {
  test.each([
    ['poll-502', { name: 'poll-502', times: Infinity, percent: 100 }],
    ['poll-502x3', { name: 'poll-502', times: 3, percent: 100 }],
    ['auth-401x12', { name: 'auth-401', times: 12, percent: 100 }],
    ['download-cut', { name: 'download-cut', times: Infinity, percent: 50 }],
    ['download-cut@40%', { name: 'download-cut', times: Infinity, percent: 40 }],
    ['download-cut@12.5%', { name: 'download-cut', times: Infinity, percent: 12.5 }],
    ['download-cutx2@40%', { name: 'download-cut', times: 2, percent: 40 }],
    ['download-cut@40%x2', { name: 'download-cut', times: 2, percent: 40 }],
  ])('reads %s', (text, fault) => {
    expect(parseFaults([text])).toEqual([{ ...fault, text }]);
  });

  test('reads several, in one text or in many', () => {
    const names = (texts: string[]): string[] => parseFaults(texts).map(({ text }) => text);
    expect(names(['poll-429x2, task-fails', '', 'tts-cut,'])).toEqual([
      'poll-429x2',
      'task-fails',
      'tts-cut',
    ]);
    expect(names([])).toEqual([]);
  });

  test.each([
    ['pol-502', /did you mean poll-502\?/],
    ['download-cutt@40%', /did you mean download-cut\?/],
    ['POLL-502', /There are: auth-401, /],
    ['poll-502x0', /1 to 10000/],
    ['poll-502x99999', /1 to 10000/],
    ['poll-502@40%', /takes no percentage/],
    ['download-cut@101%', /0 to 100/],
    ['download-cutx1@40%x2', /Two counts/],
    ['poll-502x', /Unknown fault/],
    ['poll-502x-1', /Unknown fault/],
  ])('refuses %s', (text, message) => {
    expect(() => parseFaults([text])).toThrow(FaultSyntaxError);
    expect(() => parseFaults([text])).toThrow(message);
  });

  test('reads whatever it can write, and never throws anything but its own error', () => {
    const names = fc.constantFrom(...FAULTS.map(({ name }) => name));
    fc.assert(
      fc.property(names, fc.integer({ min: 1, max: 10_000 }), (name, times) => {
        expect(parseFaults([`${name}x${times}`])).toMatchObject([{ name, times }]);
      }),
    );
    fc.assert(
      fc.property(fc.string(), (text) => {
        try {
          parseFaults([text]);
        } catch (error) {
          expect(error).toBeInstanceOf(FaultSyntaxError);
        }
      }),
    );
  });
});

describe('counting', () => {
  test('a fault strikes as often as it should, also when another process counts along', () => {
    const state = freshState();
    const [here, there] = [parseFaults(['poll-502x3']), parseFaults(['poll-502x3'])];
    const hits = [here, there, here, there, here].map((faults) => takeFault(state, faults, 'poll-502')?.name);
    expect(hits).toEqual(['poll-502', 'poll-502', 'poll-502', undefined, undefined]);
  });

  test('a fault that is declined is not used up', () => {
    const state = freshState();
    const faults = parseFaults(['download-cutx1@40%']);
    expect(takeFault(state, faults, 'download-cut', (percent) => percent > 40)).toBeUndefined();
    expect(takeFault(state, faults, 'download-cut')).toEqual({ name: 'download-cut', percent: 40 });
    expect(takeFault(state, faults, 'download-cut')).toBeUndefined();
  });

  test('starts anew once it is forgotten', () => {
    const state = freshState();
    const faults = parseFaults(['poll-502x1']);
    expect(takeFault(state, faults, 'poll-502')).toBeDefined();
    forgetFaults(state);
    expect(takeFault(state, faults, 'poll-502')).toBeDefined();
    expect(takeFault(state, faults, 'poll-502')).toBeUndefined();
  });

  test('a fault that was not asked for never strikes', () => {
    expect(takeFault(freshState(), parseFaults(['poll-502']), 'poll-503')).toBeUndefined();
  });
});

test('the catalogue names each fault once, and can be read as asked for', () => {
  expect(new Set(FAULTS.map(({ name }) => name)).size).toBe(FAULTS.length);
  expect(parseFaults(FAULTS.map(({ name }) => name)).map(({ name }) => name)).toEqual(
    FAULTS.map(({ name }) => name),
  );
});
