import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Reply, SpooledMedia, SubmitVerdict } from '../../src/exchange.ts';
import { isObject, type Json, type JsonObject } from '../../src/json.ts';
import { compose, longName, type FlagValue, fieldSegments, hasField } from '../../src/protocols/compose.ts';
import type { Flag, Protocol, QueryVerdict } from '../../src/protocols/protocol.ts';
import { judgeFailedSubmission } from '../../src/protocols/verdicts.ts';
import { violationMessage } from '../../src/protocols/violations.ts';
import { anyCharacter } from '../support/any-character.ts';

/** A recorded response: the JSON body or raw text, and the status (default: 200). */
export interface Sample {
  name: string;
  body?: Json;
  text?: string;
  status?: number;
  headers?: Record<string, string>;
  /** The media diverted from the response as it arrived. */
  spooled?: SpooledMedia[];
}

/** A response that contains a handle. */
export interface AcceptedSample extends Sample {
  handle: string;
  /** Other ids that a reader may return as the handle if the response is damaged. */
  otherIds?: string[];
}

/** A protocol's input for {@link conformance}. */
export interface Samples {
  /** A body that may be sent. */
  body: JsonObject;
  /** The body that mgw sends, if different from `body`. */
  sent?: JsonObject;
  /** A handle that can be queried. */
  handle: string;
  /** A value for each of the protocol's flags, by long name. */
  flags: Record<string, FlagValue>;
  submission: {
    accepted: AcceptedSample[];
    rejected: Sample[];
    unavailable: Sample[];
    unknown: Sample[];
  };
  query: {
    queued: Sample[];
    running: Sample[];
    succeeded: Sample[];
    failed: Sample[];
    missing: Sample[];
    unauthorized: Sample[];
    again: Sample[];
  };
}

/** Returns `sample` in the form that a protocol's readers receive. */
export function replyOf(sample: Omit<Sample, 'name'>, complete = true): Reply {
  const text = sample.text ?? (sample.body === undefined ? '' : JSON.stringify(sample.body));
  const { status = 200, headers = {}, spooled } = sample;
  return { status, headers, text, complete, spooled };
}

/** Defines the tests that every protocol must pass, using the protocol's recorded responses. */
export async function conformance(protocol: Protocol, samples: Samples): Promise<void> {
  const { check, advise } = await protocol.checks();
  const { submission, query } = samples;
  const submit = (sample: Omit<Sample, 'name'>, complete?: boolean): SubmitVerdict =>
    protocol.readSubmission(replyOf(sample, complete), samples.body);
  const ask = (sample: Omit<Sample, 'name'>, complete?: boolean): QueryVerdict =>
    protocol.readQuery(replyOf(sample, complete), samples.handle);

  describe(`requests of protocol ${protocol.name}`, () => {
    it('contain a valid body unchanged', () => {
      const before = JSON.stringify(samples.body);
      const normal = protocol.normalize(samples.body);
      expect(violationMessage(check(normal))).toBe('');
      const { method, path, body } = protocol.submission(normal);
      expect([method, path.startsWith('/')]).toEqual(['POST', true]);
      expect(JSON.parse(body ?? '')).toEqual(samples.sent ?? normal);
      expect(JSON.stringify(samples.body)).toBe(before);
    });

    it('are the same after a second normalization', () => {
      const once = protocol.normalize(samples.body);
      expect(protocol.normalize(once)).toEqual(once);
    });

    it('do not contain the key, because the client adds it', () => {
      for (const exchange of [protocol.submission(samples.body), protocol.query(samples.handle)])
        expect(Object.keys(exchange.headers).join()).not.toMatch(/authorization|api-key|cookie/i);
    });

    it.each([
      ['empty', ''],
      ['blank', ' '],
      ['a step up', '..'],
      ['a step up inside', 'a/../b'],
      ['a query', 'x?y'],
      ['a fragment', 'x#y'],
      ['a line feed', 'a\nb'],
      ['an absolute URL', 'https://example.com/x'],
      ['very long', 'x'.repeat(100_000)],
      ['half a character', '\ud800'],
    ])('never contain a handle that changes their path: %s', (_, handle) => {
      const exchange = attempt(() => protocol.query(handle));
      if (exchange.error !== undefined) {
        expectUnaskable(exchange.error);
        return;
      }
      // A protocol whose queries have a body may send any handle in the body.
      expect(exchange.value?.path).toBe(protocol.query(samples.handle).path);
    });

    it('are checked without throwing or changing the body', () => {
      fc.assert(
        fc.property(fc.dictionary(fc.constantFrom(...fieldNames(samples)), fc.jsonValue()), (given) => {
          const body = { ...samples.body, ...(given as JsonObject) };
          const before = JSON.stringify(body);
          for (const violation of check(protocol.normalize(body))) {
            expect(violation.field).not.toBe('');
            expect(violation.allowed).not.toBe('');
            expect(violation.value.length).toBeLessThanOrEqual(80);
          }
          advise(body);
          protocol.modelOf(body);
          expect(JSON.stringify(body)).toBe(before);
        }),
        {
          numRuns: 40,
          // JavaScript can convert this value to neither a number nor a string.
          examples: fieldNames(samples).map((field): [JsonObject] => [{ [field]: { toString: null } }]),
        },
      );
    });
  });

  describe(`flags of protocol ${protocol.name}`, () => {
    it('each have exactly one sample value in the tests', () => {
      const names = protocol.flags.map(longName);
      expect(new Set(names).size).toBe(names.length);
      expect(Object.keys(samples.flags).sort()).toEqual([...names].sort());
    });

    it.each(protocol.flags.map((flag): [string, Flag] => [longName(flag), flag]))(
      'each set a field: --%s',
      (name, flag) => {
        const body = compose(protocol, { flags: { [name]: samples.flags[name] ?? '' } });
        expect(hasField(body, fieldSegments(flag.field))).toBe(true);
        expect(flag.description).not.toBe('');
        expect(/[<[]/.test(flag.flags)).toBe(flag.kind !== 'switch');
        expect(flag.flags.includes('...')).toBe(flag.kind === 'list');
      },
    );

    it('appear in the violations of their fields', () => {
      const broken = Object.fromEntries(Object.keys(samples.body).map((field) => [field, { wrong: true }]));
      const names = protocol.flags.map((flag) => `--${longName(flag)}`);
      const found = check(broken);
      expect(found).not.toHaveLength(0);
      for (const { flag } of found) if (flag !== undefined) expect(names).toContain(flag);
    });
  });

  describe(`responses to a submission of protocol ${protocol.name}`, () => {
    it.each(submission.accepted)('are read as accepted: $name', (sample) => {
      expect(submit(sample)).toMatchObject({ kind: 'accepted', handle: sample.handle });
    });
    for (const kind of ['rejected', 'unavailable', 'unknown'] as const)
      it.each(submission[kind])(`are read as ${kind}: $name`, (sample) => {
        const verdict = submit(sample);
        expect(verdict).toMatchObject({ kind });
        expect('failure' in verdict && verdict.failure.message).toBeTruthy();
      });

    it.each(submission.accepted)(
      'are never read as a refusal if the task was accepted, even if damaged: $name',
      (sample) => {
        const handles = [sample.handle, ...(sample.otherIds ?? [])];
        expectForAll([...mutations(sample), ...cuts(sample)], (changed) => {
          const verdict = submit(changed, changed.text === undefined);
          return verdict.kind === 'accepted' ? handles.includes(verdict.handle) : verdict.kind === 'unknown';
        });
      },
    );

    it.each(submission.accepted)(
      "yield the handle once the handle's last character has arrived: $name",
      (sample) => {
        const { text } = replyOf(sample);
        const forms = [JSON.stringify(sample.handle), `:${sample.handle},`, `:${sample.handle}}`];
        const ends = forms
          .filter((form) => text.includes(form))
          .map((form) => text.indexOf(form) + form.length);
        expectForAll(cuts(sample).slice(Math.min(...ends)), (cut) => {
          const verdict = submit(cut, false);
          return verdict.kind === 'accepted' && verdict.handle === sample.handle;
        });
      },
    );

    it.each(submission.accepted)(
      'are not refusals if they contain a task, regardless of the status: $name',
      (sample) => {
        for (const status of [307, 400, 403, 429, 500, 503])
          expect(submit({ ...sample, status })).toMatchObject({ kind: 'unknown', handle: sample.handle });
        // A complete response with this status would be a refusal that allows a retry.
        expectForAll(cuts(sample), (cut) => submit({ ...cut, status: 429 }, false).kind === 'unknown');
      },
    );

    it.each(submission.accepted)(
      "are not refusals if their message is a task's JSON, regardless of the status: $name",
      (sample) => {
        const failure = { message: replyOf(sample).text };
        for (const status of [200, 307, 400, 403, 429, 500, 503])
          for (const body of [failure, { error: failure }, { code: 'x', message: JSON.stringify(failure) }])
            expect(submit({ headers: { 'retry-after': '1' }, status, body }).kind).toBe('unknown');
      },
    );

    it('are judged by the rules that all protocols share if their status is not 2xx', () => {
      for (const sample of allSamples(samples))
        for (const status of [301, 307, 400, 429, 503])
          for (const complete of [true, false]) {
            const reply = replyOf({ ...sample, status }, complete);
            const verdict = judgeFailedSubmission(reply, samples.body);
            expect(protocol.readSubmission(reply, samples.body)).toEqual(verdict);
          }
    });

    it.each([...submission.rejected, ...submission.unavailable, ...submission.unknown])(
      'are never read as a task if they contain none, and never as a refusal if truncated: $name',
      (sample) => {
        expectForAll(mutations(sample), (changed) => submit(changed).kind !== 'accepted');
        expectForAll(cuts(sample), (cut) => submit(cut, false).kind === 'unknown');
      },
    );
  });

  describe(`responses to a query of protocol ${protocol.name}`, () => {
    for (const state of ['queued', 'running', 'succeeded', 'failed'] as const)
      it.each(query[state])(`are read as ${state}: $name`, (sample) => {
        const verdict = ask(sample);
        expect(verdict).toMatchObject({ kind: 'observation', state });
        if (verdict.kind !== 'observation') return;
        expect(verdict.results.length > 0).toBe(state === 'succeeded');
        expect(verdict.failure === undefined).toBe(state !== 'failed');
      });
    for (const kind of ['missing', 'unauthorized', 'again'] as const)
      it.each(query[kind])(`are read as ${kind}: $name`, (sample) => {
        expect(ask(sample)).toMatchObject({ kind });
      });

    it.each([
      ...query.queued,
      ...query.running,
      ...query.failed,
      ...query.missing,
      ...query.unauthorized,
      ...query.again,
    ])('are never read as a success without proof: $name', (sample) => {
      const values = [...retyped, 'text', 7, [1], { inside: 1 }];
      expectForAll(mutations(sample, values), (changed) => !isSuccess(ask(changed)));
      expectForAll(cuts(sample), (cut) => !isSuccess(ask(cut, false)));
    });

    it.each(query.succeeded)(
      'are read as a complete success or as no success, and are requested again if truncated: $name',
      (sample) => {
        const whole = sourcesOf(ask(sample)).map((source) => JSON.stringify(source));
        expectForAll([...mutations(sample), ...cuts(sample)], (changed) => {
          const verdict = ask(changed, changed.text === undefined);
          if (!isSuccess(verdict)) return changed.text === undefined || verdict.kind === 'again';
          return sourcesOf(verdict).every((source) => whole.includes(JSON.stringify(source)));
        });
      },
    );
  });

  describe(`any response of protocol ${protocol.name}`, () => {
    const status = fc.constantFrom(200, 201, 204, 302, 400, 401, 403, 404, 422, 429, 500, 503, 520);
    const members = fc.constantFrom(...memberNames(samples));
    const words = fc.constantFrom(...leaves(samples));
    const json = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 4 },
        words,
        fc.constantFrom(null, true, 0, -1, 1.5, ''),
        fc.array(tie('value'), { maxLength: 2 }),
        fc.dictionary(members, tie('value'), { maxKeys: 4 }),
      ),
    })).value;
    const text = fc.oneof(
      json.map((value) => JSON.stringify(value)),
      fc.json(),
      fc.string({ unit: anyCharacter }),
    );

    it('is read without throwing', () => {
      fc.assert(
        fc.property(status, text, fc.boolean(), (code, body, complete) => {
          const reply: Reply = { status: code, headers: {}, text: body, complete };
          const verdict = protocol.readSubmission(reply, samples.body);
          if (verdict.kind === 'accepted') expect([verdict.handle !== '', code < 300]).toEqual([true, true]);
          if (verdict.kind === 'rejected' || verdict.kind === 'unavailable') expect(complete).toBe(true);
          const seen = protocol.readQuery(reply, samples.handle);
          if (isSuccess(seen)) expect(code).toBeLessThan(300);
          protocol.notReady(reply);
        }),
        { numRuns: 60 },
      );
    });

    it('is read without access to inherited members', () => {
      for (const sample of [...submission.accepted, ...query.succeeded])
        for (const name of ['__proto__', 'constructor', 'prototype']) {
          const body = `{"${name}":${JSON.stringify(sample.body)}}`;
          expect(submit({ text: body }).kind).toBe('unknown');
          expect(isSuccess(ask({ text: body }))).toBe(false);
        }
      expect(Object.getOwnPropertyNames(Object.prototype)).toHaveLength(12);
      expect(Object.keys({})).toEqual([]);
    });
  });
}

function expectUnaskable(error: unknown): void {
  expect(error).toMatchObject({ code: 'result_unavailable', charged: 'yes', exitCode: 9 });
}

function attempt<T>(run: () => T): { value?: T; error?: unknown } {
  try {
    return { value: run() };
  } catch (error) {
    return { error };
  }
}

// Checks many responses at once, because an `expect` for each takes longer than the check.
function expectForAll(
  responses: Omit<Sample, 'name'>[],
  isRight: (response: Omit<Sample, 'name'>) => boolean,
): void {
  const wrong = responses.filter((response) => !isRight(response));
  expect(wrong.map(({ body, text }) => text ?? body)).toEqual([]);
}

// A finished task without a result is not a success: the command exits with "incomplete".
function isSuccess(verdict: QueryVerdict): boolean {
  const { state } = verdict.kind === 'observation' ? verdict : {};
  return state === 'succeeded' && sourcesOf(verdict).length > 0;
}

function sourcesOf(verdict: QueryVerdict): unknown[] {
  return verdict.kind === 'observation' ? verdict.results.flatMap((result) => result.sources) : [];
}

const retyped = [undefined, null, true, 0, '', [], {}];

/** Returns copies of `body`, each with one field removed, null or of a different type. */
export function mutationsOf(body: Json, values: readonly (Json | undefined)[] = retyped): Json[] {
  return pathsOf(body).flatMap((path) => values.map((value) => changedAt(body, path, value)));
}

function mutations(sample: Sample, values?: readonly (Json | undefined)[]): Omit<Sample, 'name'>[] {
  const { body } = sample;
  return body === undefined ? [] : mutationsOf(body, values).map((changed) => ({ ...sample, body: changed }));
}

/** Returns copies of `sample`, truncated after each character as if the response had ended early. */
function cuts(sample: Sample): Omit<Sample, 'name'>[] {
  const { text } = replyOf(sample);
  const lengths = Array.from({ length: Math.min(text.length, 2000) }, (_, length) => length);
  return lengths.map((length) => ({ ...sample, body: undefined, text: text.slice(0, length) }));
}

function pathsOf(value: Json | undefined): string[][] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, member]) => [
    [name],
    ...pathsOf(member).map((path) => [name, ...path]),
  ]);
}

function changedAt(value: Json, [step, ...rest]: string[], to: Json | undefined): Json {
  const copy = structuredClone(value) as JsonObject;
  if (step === undefined) return copy;
  const member = copy[step];
  if (rest.length > 0 && member !== undefined) copy[step] = changedAt(member, rest, to);
  else if (to === undefined && isObject(copy)) Reflect.deleteProperty(copy, step);
  else copy[step] = to === undefined ? null : to;
  return copy;
}

function allSamples({ submission, query }: Samples): Sample[] {
  return [...Object.values(submission), ...Object.values(query)].flat();
}

function memberNames(samples: Samples): string[] {
  return [...new Set(allSamples(samples).flatMap(({ body }) => pathsOf(body).flat()))];
}

function leaves(samples: Samples): Json[] {
  const found = allSamples(samples).flatMap(({ body }) => pathsOf(body).map((path) => valueAt(body, path)));
  return found.filter((value) => typeof value !== 'object');
}

function valueAt(value: Json | undefined, path: string[]): Json {
  return path.reduce<Json>((held, step) => (held as JsonObject)[step] ?? null, value ?? null);
}

function fieldNames(samples: Samples): string[] {
  return [...Object.keys(samples.body), 'unheard_of', '__proto__'];
}
