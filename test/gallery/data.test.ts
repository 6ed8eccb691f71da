import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readRow } from '../../src/batch/manifest/row.ts';
import { type CollectDeps, collectItems } from '../../src/gallery/collect.ts';
import { stateBySize } from '../../src/files/whole-file.ts';
import { Links, Peaks } from '../../src/gallery/files.ts';
import { redoRow } from '../../src/gallery/redo.ts';
import {
  filterItems,
  fragmentOf,
  plainView,
  promptOf,
  redoRows,
  viewOf,
} from '../../src/gallery/page/select.ts';
import type { Job, JobEvent, JobKind } from '../../src/job.ts';
import { foldJob } from '../../src/ledger/fold.ts';
import type { Json, JsonObject } from '../../src/json.ts';
import { compose } from '../../src/protocols/compose.ts';
import { protocolNamed } from '../../src/protocols/registry.ts';
import { redactor, withoutSignatures } from '../../src/redact.ts';
import { wavHeader } from '../../src/speech/containers.ts';

const id = 'job_1m81drhkcpw8an';
const at = '2026-11-22T08:00:00.000Z';

function jobOf(protocol: JobKind, request: Json, more: JobEvent[] = [], key?: string): Job {
  const prepared = {
    type: 'prepared',
    protocol,
    base_url: 'sandbox',
    fingerprint: 'f',
    account: '',
    request,
    key,
  };
  const job = foldJob(id, [prepared, ...more].map((event) => ({ at, ...event })) as never);
  if (job === undefined) throw new Error('no job');
  return job;
}

const ledgerOf = (...jobs: Job[]): Parameters<typeof collectItems>[1] => ({
  events: () => Promise.resolve([]),
  ids: () => Promise.resolve(jobs.map((job) => job.id)),
  read: (wanted) => Promise.resolve(jobs.find((job) => job.id === wanted)),
});

const key = 'sk-canary-5d41402abc4b2a76b9719d911017c592';
const deps = (links: Links): CollectDeps => ({
  redact: (text) => withoutSignatures(redactor([key])(text)),
  hrefOf: ({ files }, index) => links.to(files[index]?.path ?? ''),
  fileState: stateBySize,
  peaksOf: () => Promise.resolve(undefined),
  commandText: (words) => words.join(' '),
  folders: ['/home/anna'],
  currency: 'EUR',
});

describe('a gallery item', () => {
  it('contains no key, no signed address and no local path', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'mgw-gallery-'));
    const name = 'a #?%"<b>.mp4';
    mkdirSync(join(folder, 'clips'));
    writeFileSync(join(folder, 'clips', name), 'film');
    const file = { path: join(folder, 'clips', name), bytes: 4, sha256: '0'.repeat(64) };
    const message = `${key} cannot read https://cdn.example.com/a.png?X-Sig=abc&e=1 for /home/anna/a.png or ${folder}/clips/b`;
    const job = jobOf(
      'c',
      {
        model: 'm',
        prompt: `with ${key} https://a.example/b?auth_key=1-0-0-abcdef`,
        image: 'https://a.example/x.png?hm=abcdefgh',
      },
      [
        { type: 'accepted', handle: 't' },
        { type: 'file', file },
        { type: 'finished', state: 'failed', native_status: 'x', error: { code: 'content_policy', message } },
      ],
    );
    const [item] = await collectItems([job], ledgerOf(), deps(new Links(join(folder, 'review'))));
    expect(item).toMatchObject({
      state: 'filtered',
      files: [{ href: '../clips/a%20%23%3F%25%22%3Cb%3E.mp4', name, kind: 'video', bytes: 4 }],
      noRedo: 'its body contains a URL that may be signed',
      command: `mgw jobs show ${id}`,
    });
    const text = JSON.stringify(item);
    for (const secret of [key, 'canary', 'X-Sig=abc', 'abcdef', '/home/anna', folder])
      expect(text).not.toContain(secret);
    expect(item?.reason).toContain('https://cdn.example.com/a.png?X-Sig=[redacted]&e=1');
  });

  it.each<[JobKind, string, string | undefined]>([
    ['c', 'boat.mp4', undefined],
    ['tts', 'boat.mp3', `mgw jobs fetch ${id} -o ${id}.mp3`],
  ])(
    'of Protocol %s says that its result is in a bucket, and not that it is gone',
    async (protocol, name, command) => {
      const accepted: JobEvent = { type: 'accepted', handle: 't' };
      const finished: JobEvent = { type: 'finished', state: 'succeeded', native_status: 'x' };
      const object = { path: `s3://clips/${name}`, bytes: 4, sha256: '0'.repeat(64) };
      const job = jobOf(protocol, { prompt: 'a boat' }, [accepted, finished, { type: 'file', file: object }]);
      const [item] = await collectItems([job], ledgerOf(), deps(new Links('/review')));
      expect(item).toMatchObject({ state: 'succeeded', files: [] });
      expect(item?.reason).toBe(
        `The result was saved in a bucket, so this page does not show it: s3://clips/${name}`,
      );
      expect(item?.command).toBe(command);
    },
  );

  it('has no link if the link would require an absolute path', () => {
    const links = new Links('/proc/self/nowhere');
    expect(links.to('/usr/share/film.mp4')).toBeUndefined();
  });
});

// Returns the body that the command composes for a manifest row.
function composed(row: JsonObject): Json {
  const fields = Object.entries(row).map(([name, value]) => ({ name, value: value ?? null, line: 1 }));
  const faults: string[] = [];
  const read = readRow({ line: 1, fields }, 1, { defaults: new Map() }, ({ message }) =>
    faults.push(message),
  );
  expect(faults).toEqual([]);
  if (read === undefined || read.kind === 'tts') return read as never;
  return compose(protocolNamed(read.kind), {
    flags: read.flags,
    set: read.set,
    body: read.body as JsonObject,
  });
}

const frame = `sha256:${'7'.repeat(64)}.mp4#last`;
const frameInfo = { Type: 'Url', Url: frame, Category: 'Image', Usage: 'FirstFrame' };

describe('a row that remakes a job', () => {
  it.each<[JobKind, JsonObject]>([
    [
      'c',
      {
        model: 'vendor-h3',
        prompt: 'a boat',
        duration: 5,
        reference_image_urls: ['https://a.example/1.png'],
      },
    ],
    ['c', { model: 'vendor-h3', prompt: 'a {model} in {{x}} }}} {id' }],
    ['c', { model: 'other', prompt: 'a boat', seconds: '5', seed: 7, prompt_optimization: false }],
    [
      'b',
      {
        ModelName: 'B',
        ModelVersion: '2.0',
        Prompt: 'a {boat}',
        FileInfos: [{ Type: 'Url', Url: 'https://a.example/1.png' }],
        OutputConfig: { Duration: 5, AudioGeneration: 'Enabled', Other: 'x' },
      },
    ],
    [
      'a',
      {
        model: 'veo',
        instances: [{ prompt: 'a <{boat}>', image: { bytesBase64Encoded: 'AAAA' } }],
        parameters: { durationSeconds: 8, seed: 3, generateAudio: true },
      },
    ],
  ])('has, for Protocol %s, the same request as the job', (protocol, request) => {
    const redo = redoRow(jobOf(protocol, request, [], 'm/boat/2'), redactor([key]));
    const row = 'row' in redo ? redo.row : {};
    expect(row).toMatchObject({ id: 'boat-again-hkcpw8an', protocol });
    expect(composed(row)).toEqual(request);
  });

  it.each<[JobKind, JsonObject, number, string]>([
    [
      'a',
      { model: 'veo', instances: [{ image: { bytesBase64Encoded: frame, mimeType: 'image/png' } }] },
      1,
      'image',
    ],
    ['b', { ModelName: 'B', FileInfos: [frameInfo] }, 1, 'first-frame'],
    ['c', { model: 'vendor-h3', prompt: 'a boat', image: frame }, 2, 'image'],
  ])(
    'refers, for Protocol %s, to the job whose frame the job used',
    async (protocol, request, count, flag) => {
      const job = jobOf(protocol, request);
      const files = [{ path: '/x/a-2.mp4', bytes: 1, sha256: '7'.repeat(64), sample: count }];
      const made = { model: 'veo', parameters: { sampleCount: count } };
      const source = {
        ...jobOf(
          'a',
          made,
          files.map((file) => ({ type: 'file', file })),
        ),
        id: 'job_source',
      };
      const [item] = await collectItems([job], ledgerOf(job, source), deps(new Links('/review')));
      expect(item?.redo).toMatchObject({ [flag]: count === 1 ? '@job_source:last' : '@job_source#2:last' });
      expect(JSON.stringify(item?.redo)).not.toContain('sha256:');
      const [alone] = await collectItems([job], ledgerOf(job), deps(new Links('/review')));
      expect(alone?.noRedo).toBe('it uses a frame of a job that a row cannot refer to');
    },
  );

  it('requests WAV if the speech was saved as a WAV file', () => {
    const request = {
      req_params: {
        text: 'A {boat}.',
        speaker: 's',
        audio_params: { format: 'pcm', sample_rate: 16000, speed: 2 },
      },
    };
    const file = { path: '/x/a.wav', bytes: 1, sha256: '0'.repeat(64) };
    expect(redoRow(jobOf('tts', request, [{ type: 'file', file }]), (text) => text)).toEqual({
      row: {
        ...{ id: 'again-hkcpw8an', protocol: 'tts', text: 'A {{boat}}.', speaker: 's', format: 'wav' },
        ...{ 'sample-rate': 16000, 'set.req_params.audio_params.speed': 2 },
      },
    });
  });

  it.each<[JobKind, JsonObject]>([
    ['c', { model: 'vendor-h3', prompt: 'a {boat}' }],
    ['tts', { req_params: { text: 'a {boat}', speaker: 's' } }],
  ])('is not shown instead of the text of Protocol %s', async (protocol, request) => {
    const [item] = await collectItems([jobOf(protocol, request)], ledgerOf(), deps(new Links('/review')));
    expect(item && promptOf(item)).toBe('a {boat}');
  });

  it('is written to redo.jsonl only if the job is marked or has a low rating, and includes the seed only on request', () => {
    const items = ['a', 'b', 'c'].map(
      (each) =>
        ({
          id: each,
          protocol: 'c',
          state: 'succeeded',
          created: at,
          files: [],
          redo: { id: each, seed: 1 },
        }) as const,
    );
    const marks: Record<string, object> = { a: { again: true, rating: 5 }, b: { rating: 2 } };
    const lines = (atMost: number, hasSeeds: boolean): string[] =>
      redoRows(items as never, (each) => marks[each] ?? {}, atMost, hasSeeds).lines;
    expect(lines(0, true)).toEqual(['{"id":"a","seed":1}']);
    expect(lines(2, false)).toEqual(['{"id":"a"}', '{"id":"b"}']);
  });
});

it("a gallery page's address contains its view", () => {
  const view = { ...plainView, text: 'a boat & #?', rating: '4', open: id };
  expect(viewOf(`#${fragmentOf(view)}`)).toEqual(view);
  expect(fragmentOf(plainView)).toBe('');
});

it('a gallery view contains the items that match all of its filters, in the requested order', () => {
  const item = (each: string, model: string, prompt: string, tags: string[]): never =>
    ({
      id: each,
      key: `m/${each}`,
      model,
      prompt,
      tags,
      protocol: 'c',
      state: 'succeeded',
      files: [],
    }) as never;
  const items = [
    item('r10', 'x', 'a boat', ['sea']),
    item('r9', 'x', 'a Boat at dusk', ['sea']),
    item('r8', 'y', 'a boat', []),
  ];
  const shown = (view: object): string[] =>
    filterItems(items, { ...plainView, ...view }, (each) => (each === 'r9' ? { rating: 4 } : {})).map(
      (one) => one.id,
    );
  expect(shown({ text: 'BOAT a', model: 'x', sort: 'name' })).toEqual(['r9', 'r10']);
  expect([shown({ tag: 'sea', text: 'dusk' }), shown({ rating: '4' }), shown({ rating: 'none' })]).toEqual([
    ['r9'],
    ['r9'],
    ['r10', 'r8'],
  ]);
});

it('a waveform shows the loudness of the samples', async () => {
  const path = join(mkdtempSync(join(tmpdir(), 'mgw-gallery-')), 'a.wav');
  const samples = Int16Array.from({ length: 960 }, (_, index) => (index < 480 ? 0 : 20_000));
  writeFileSync(path, Buffer.concat([wavHeader(8000, 1920), Buffer.from(samples.buffer)]));
  expect(await new Peaks().of(path)).toBe('0'.repeat(48) + '9'.repeat(48));
});
