import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { openManifest } from '../../../src/batch/manifest/manifest.ts';
import { asField, problemText } from '../../../src/batch/manifest/fields.ts';
import { parseDefaults, type Row } from '../../../src/batch/manifest/row.ts';
import { freshFolder } from '../../support/fresh-folder.ts';

interface Read {
  rows: Row[];
  problems: string[];
}

function fileOf(name: string, content: string | Uint8Array): string {
  const path = join(freshFolder(), name);
  writeFileSync(path, content);
  return path;
}

async function read(name: string, content: string | Uint8Array, ...defaults: string[]): Promise<Read> {
  const manifest = await openManifest(fileOf(name, content), { commandDefaults: parseDefaults(defaults) });
  const found: Read = { rows: [], problems: [] };
  for await (const item of manifest.items()) {
    if ('row' in item) found.rows.push(item.row);
    else found.problems.push(...item.problems.map((problem) => problemText('m', problem)));
  }
  return found;
}

const c = { protocol: 'c', model: 'vendor-h3', prompt: 'a boat' };
const row = {
  index: 1,
  line: 1,
  kind: 'c',
  flags: { model: 'vendor-h3', prompt: 'a boat' },
  set: [],
  tags: [],
};

const jsonl = (...rows: unknown[]): string => rows.map((one) => JSON.stringify(one)).join('\n');

it.each([
  ['--duration must be at least 4; see --model', 'duration must be at least 4; see model'],
  ['--model: run `mgw models --protocol a`', 'model: run `mgw models --protocol a`'],
  ['use --allow-files DIR', 'use --allow-files DIR'],
])('a message about a row names its fields without dashes, but keeps commands: %s', (message, expected) => {
  expect(asField(message)).toBe(expected);
});

describe('a manifest row', () => {
  it('is parsed by the same rules as command-line flags', async () => {
    const written = {
      ...c,
      id: 7,
      duration: 5,
      aspect_ratio: '16:9',
      'prompt-optimization': 'TRUE',
      'reference-image': ['https://a/1', 'https://a/2'],
      reference_audio: 'https://a/1 https://a/2',
      'set.x.y': { z: ['5', 5, null] },
      body: { seconds: 5 },
      endpoint: 'videos',
      output: 'boat.mp4',
      tags: 'red blue',
    };
    const { rows, problems } = await read('m.jsonl', jsonl(written));
    expect(problems).toEqual([]);
    expect(rows).toEqual([
      {
        ...row,
        id: '7',
        flags: {
          ...row.flags,
          duration: '5',
          'aspect-ratio': '16:9',
          'prompt-optimization': true,
          'reference-image': ['https://a/1', 'https://a/2'],
          'reference-audio': ['https://a/1', 'https://a/2'],
        },
        set: ['x.y={"z":["5",5,null]}'],
        body: { seconds: 5 },
        endpoint: 'videos',
        output: 'boat.mp4',
        tags: ['red', 'blue'],
      },
    ]);
  });

  it('is read identically from every manifest format', async () => {
    const texts = {
      'm.csv':
        'id,protocol,prompt,model,model_version,duration,audio,reference,set.A.B\n1,b,a boat,Kling,2.0,5,false,https://a/1 https://a/2,7\n',
      'm.jsonl': `\n${jsonl({ id: '1', protocol: 'b', prompt: 'a boat', model: 'Kling', 'model-version': '2.0', duration: 5, audio: false, reference: ['https://a/1', 'https://a/2'], 'set.A.B': 7 })}`,
      'm.yaml':
        'rows:\n- {id: 1, protocol: b, prompt: a boat, model: Kling, model-version: 2.0, duration: 5, audio: false, reference: [https://a/1, https://a/2], set.A.B: 7}',
    };
    const found = await Promise.all(Object.entries(texts).map(([name, text]) => read(name, text)));
    const [one] = found;
    expect(one?.rows).toMatchObject([{ line: 2, flags: { 'model-version': '2.0', audio: false } }]);
    for (const each of found) expect(each).toEqual(one);
  });

  it("inherits missing fields from the command line's defaults, then from the defaults of its kind", async () => {
    const yaml = `
defaults: {protocol: c, model: vendor-h3, duration: 5, prompt: the default}
rows:
- prompt: own
- {protocol: tts, text: hello}
- duration: null`;
    const { rows, problems } = await read('m.yaml', yaml, 'duration=8', 'set.x=5', 'speaker=anna');
    expect(problems).toEqual([]);
    expect(rows.map(({ kind, flags, set, text }) => ({ kind, flags, set, text }))).toEqual([
      {
        kind: 'c',
        flags: { model: 'vendor-h3', duration: '8', prompt: 'own' },
        set: ['x=5'],
        text: undefined,
      },
      { kind: 'tts', flags: { speaker: 'anna' }, set: ['x=5'], text: 'hello' },
      {
        kind: 'c',
        flags: { model: 'vendor-h3', duration: '8', prompt: 'the default' },
        set: ['x=5'],
        text: undefined,
      },
    ]);
  });

  it('is reported with all its errors, and the other rows are still read', async () => {
    const bad = {
      protocol: 'c',
      prompt: 5,
      duration: 'long',
      modell: 'x',
      text: 'x',
      id: 'a/b',
      aspect_ratio: '1:1',
      'aspect-ratio': '2:1',
      audio: true,
      'set.__proto__': 1,
    };
    const { rows, problems } = await read(
      'm.jsonl',
      jsonl(c, bad, [1], 'x', c, { ...c, protocol: 'D' }, { model: 'x' }),
    );
    expect(rows.map(({ index, line }) => [index, line])).toEqual([
      [1, 1],
      [3, 5],
    ]);
    expect(problems).toEqual([
      'm:2: aspect_ratio and aspect-ratio are the same field',
      'm:2: unknown field modell; did you mean model?',
      'm:2: unknown field text for protocol c; allowed for tts',
      'm:2: unknown field audio for protocol c; allowed for a, b',
      'm:2: set.__proto__: __proto__ is not allowed in a path',
      'm:2: id: a/b is not allowed; allowed: 1 to 128 letters (a to z, A to Z), digits and _ . @ : + -, beginning with a letter, digit or _, without ..',
      'm:2: prompt: 5 is not allowed; allowed: text',
      'm:2: duration: long is not allowed; allowed: a number in digits, such as 5',
      'm:3: it is a list: JSON Lines requires one object per line, without enclosing brackets',
      'm:4: it is not an object: JSON Lines requires one per line, such as {"prompt":"a boat"}',
      'm:6: protocol: D is not allowed; allowed: a, b, c or tts',
      'm:7: protocol: missing; add a model, or set the protocol to a, b, c or tts here or as a default',
    ]);
  });

  it.each([
    [{ ...c, 'set.a..b': 1 }, /^m:1: .*empty segment/],
    [{ ...c, tags: 'a/b' }, /^m:1: tags: .* allowed: at most 32 words/],
    [{ ...c, body: '-' }, /^m:1: body: - is not allowed/],
    [{ ...c, body: '[1]' }, /^m:1: body: \[1\] is not allowed/],
    [{ ...c, body: 5 }, /^m:1: body: 5 is not allowed; allowed: an object, or @FILE/],
    [{ ...c, protocol: 'a', audio: 'yes' }, /^m:1: audio: yes is not allowed; allowed: true or false/],
    [{ ...c, output: ' ' }, /^m:1: output: " " is not allowed; allowed: non-empty text/],
    [{ ...c, endpoint: 'other' }, /^m:1: endpoint: other is not allowed/],
    [{ protocol: 'tts', text: '' }, /^m:1: text: "" is not allowed/],
    [
      { protocol: 'tts', text: 'x', sample_rate: '1e4' },
      /^m:1: sample_rate: 1e4 is not allowed; allowed: a whole number, 1 to 1000000/,
    ],
    [
      { protocol: 'b', prompt: 'x', 'model-version': 2 },
      /^m:1: model-version: 2 is not allowed; allowed: text/,
    ],
    [
      { ...c, reference_image: [5] },
      /^m:1: reference_image: a list of 1 is not allowed; allowed: a list of strings/,
    ],
  ])('is refused: %j', async (written, message) => {
    const { rows, problems } = await read('m.jsonl', jsonl(written));
    expect(rows).toEqual([]);
    expect(problems).toEqual([expect.stringMatching(message)]);
  });
});

describe('JSON Lines manifests', () => {
  it('are read line by line', async () => {
    const { rows, problems } = await read(
      'm.ndjson',
      `\n${jsonl(c)}\r\n\n{"protocol":\n{"protocol":"c","seed":12345678901234567890}\n${jsonl(c)}`,
    );
    expect(rows.map(({ line }) => line)).toEqual([2, 6]);
    expect(problems).toEqual([
      expect.stringMatching(/^m:4: it is not JSON: /),
      'm:5: the number 12345678901234567890 would lose precision; quote it to send it as text',
    ]);
  });
});

describe('a row in JSON Lines that repeats a name', () => {
  it.each([
    ['{"protocol":"c","prompt":"FIRST","prompt":"SECOND"}', 'prompt'],
    ['{"protocol":"c","body":{"seed":1,"seed":2}}', 'seed'],
  ])('is refused: %s', async (text, name) => {
    const { rows, problems } = await read('m.jsonl', `${text}\n${jsonl(c)}`);
    expect(problems).toEqual([`m:1: duplicate field ${name}`]);
    expect(rows.map(({ line }) => line)).toEqual([2]);
  });
});

describe('a YAML manifest', () => {
  it('is read with its settings, and the rows of its matrix follow the other rows', async () => {
    const yaml = `
name: clips
output: "{name}/{id}.{ext}"
concurrency: 3
budget: 12.50
matrix:
  prompt: [a boat, a ship]
  seed: [1, 2]
defaults: {protocol: a, model: veo}
rows:
- prompt: first`;
    const manifest = await openManifest(fileOf('m.yml', yaml));
    expect(manifest.head).toEqual({
      name: 'clips',
      output: '{name}/{id}.{ext}',
      concurrency: '3',
      budget: '12.50',
    });
    const { rows } = await read('m.yml', yaml);
    expect(rows.map(({ index, line, flags }) => [index, line, flags['prompt'], flags['seed']])).toEqual([
      [1, 11, 'first', undefined],
      [2, 6, 'a boat', '1'],
      [3, 6, 'a boat', '2'],
      [4, 6, 'a ship', '1'],
      [5, 6, 'a ship', '2'],
    ]);
  });

  it('causes an error with the line of an invalid matrix value for every row that uses the value', async () => {
    const yaml = 'defaults: {protocol: a}\nmatrix:\n  prompt: [x, y]\n  seed:\n  - 1\n  - one';
    const { rows, problems } = await read('m.yaml', yaml);
    expect(rows).toHaveLength(2);
    const problem = 'm:6: seed: one is not allowed; allowed: a whole number in digits, such as 5';
    expect(problems).toEqual([problem, problem]);
  });

  it("may contain anchors, and each row's errors have that row's line numbers", async () => {
    const yaml = 'rows:\n- &one\n  protocol: c\n  prompt: &p a boat\n- *one\n-\n  protocol: c\n  prompt: *p';
    const { rows, problems } = await read('m.yaml', yaml);
    expect(problems).toEqual([]);
    expect(rows.map(({ line, flags }) => [line, flags['prompt']])).toEqual([
      [3, 'a boat'],
      [5, 'a boat'],
      [7, 'a boat'],
    ]);
  });

  it.each([
    ['rows: [', [/^m:1: invalid YAML/]],
    ['rows:\n- {id: 1, id: 2, protocol: c}', [/^m:2: duplicate field id/]],
    ['rows: []\n---\nb: 2', [/multiple documents/]],
    ['- 1', [/^m:1: the file is not a map/]],
    ['', [/^m:1: the file is not a map/]],
    ['rows: 5', [/^m:1: rows is not a list/]],
    ['rows:\n- 5\n- {protocol: c, prompt: x}', [/^m:2: the row is not a map/]],
    ['rows:\n- !js x', [/^m:2: invalid YAML: .*tag/]],
    ['name: x', [/^m:1: the file has neither rows nor a matrix/]],
    [
      'nmae: x\nconcurrency: 0\nbudget: 1O\nrows: []',
      [
        /^m:1: a manifest has no nmae; did you mean name/,
        /^m:2: concurrency: "0" is not allowed/,
        /^m:3: budget: 1O is not allowed/,
      ],
    ],
    [
      'defaults: {durration: 5, id: x}\nrows:\n- {protocol: c, prompt: x}',
      [/^m:1: .*did you mean duration/, /^m:1: an id belongs to one row/],
    ],
    [
      'defaults: {duration: long}\nrows:\n- {protocol: c, prompt: x}',
      [/^m:1: duration: long is not allowed/],
    ],
    ['matrix: {prompt: []}', [/^m:1: matrix.prompt is not a list with at least one entry/]],
    [
      `matrix: {${Array.from({ length: 7 }, (_, n) => `x${n}: [${'1,'.repeat(10)}]`).join(', ')}}`,
      [/^m:1: matrix produces 10000000 rows/],
    ],
    [
      'rows:\n- {protocol: c, prompt: x, set.a: 12345678901234567890}',
      [/^m:2: the number 12345678901234567890 would lose precision/],
    ],
    ['rows:\n- {protocol: c, prompt: x, set.a: .inf}', [/^m:2: the number .inf would lose precision/]],
    [
      'rows:\n- {protocol: c, prompt: x, body: {__proto__: {a: 1}}}',
      [/^m:2: the name __proto__ is not allowed/],
    ],
    ['rows:\n- &a {protocol: c, body: {a: *a}}', [/too deeply|Unresolved alias/]],
    [
      'rows:\n- {protocol: c, prompt: "a\0b"}',
      [/^m:2: it contains a NUL byte/, /no part of the file was used/],
    ],
  ])('is refused: %j', async (yaml, messages) => {
    const { problems } = await read('m.yaml', yaml);
    expect(problems).toEqual(messages.map((message) => expect.stringMatching(message) as string));
  });

  it('is refused if its nested aliases expand beyond a limit', async () => {
    const levels = Array.from(
      { length: 12 },
      (_, n) => `set.l${n + 1}: &l${n + 1} [${`*l${n},`.repeat(10)}]`,
    );
    const yaml = `rows:\n- protocol: c\n  set.l0: &l0 x\n  ${levels.join('\n  ')}`;
    expect((await read('m.yaml', yaml)).problems).toEqual([expect.stringMatching(/too deeply or too large/)]);
  });

  it('is refused above a size limit, and the error lists the formats without a limit', async () => {
    const { problems } = await read('m.yaml', `rows:\n${`# ${'x'.repeat(1021)}\n`.repeat(2048)}`);
    expect(problems).toEqual([
      'm:1: a YAML manifest may have at most 2 MiB; JSON Lines and CSV have no limit',
    ]);
  });
});

describe('a manifest', () => {
  it('is read to its end, in every format, regardless of its bytes', async () => {
    const words = [
      'rows:\n',
      '- ',
      'protocol',
      ': ',
      'c',
      '{',
      '}',
      '"',
      ',',
      '\n',
      '&a ',
      '*a',
      '[',
      ']',
      '  ',
    ];
    const piece = fc.oneof(
      fc.uint8Array({ maxLength: 4 }),
      fc.constantFrom(...words).map((word) => Buffer.from(word)),
    );
    const name = fc.constantFrom('m.csv', 'm.jsonl', 'm.yaml');
    await fc.assert(
      fc.asyncProperty(name, fc.array(piece), async (file, pieces) => {
        const { problems } = await read(file, Buffer.concat(pieces));
        for (const problem of problems) expect(problem).toMatch(/^m:[1-9]\d*: ./);
      }),
      { numRuns: 50 },
    );
  });

  it.each(['clips.txt', 'clips', 'clips.json'])('is refused if its name is %s', async (name) => {
    await expect(openManifest(fileOf(name, ''))).rejects.toThrow(
      'end in .jsonl, .ndjson, .csv, .tsv, .yaml, .yml',
    );
  });

  it('is refused if it is missing, a folder or a FIFO', async () => {
    const folder = freshFolder();
    mkdirSync(join(folder, 'a.csv'));
    execFileSync('mkfifo', [join(folder, 'b.csv')]);
    for (const name of ['a.csv', 'b.csv', 'c.csv'])
      await expect(openManifest(join(folder, name))).rejects.toMatchObject({
        code: 'usage',
        exitCode: 2,
      });
  });

  it('is not read further if it changed between two reads', async () => {
    const path = fileOf('m.jsonl', jsonl(c));
    const manifest = await openManifest(path);
    for await (const item of manifest.items()) expect(item).toHaveProperty('row');
    appendFileSync(path, '\n');
    await expect(manifest.items().next()).rejects.toThrow('was changed while mgw was reading it');
  });
});

describe('the flag -d NAME=VALUE', () => {
  it.each([
    ['duration', 'write it as NAME=VALUE'],
    ['=5', 'write it as NAME=VALUE'],
    ['durration=5', 'did you mean duration'],
    ['duration=five', 'duration: five is not allowed'],
    ['id=5', 'an id belongs to one row'],
    ['__proto__=5', 'unknown field __proto__'],
  ])('refuses the value %s', (given, message) => {
    expect(() => parseDefaults([given])).toThrow(message);
  });
});

// mgw stores only the name and offset of each row. All rows together would exceed the memory limit of this test.
it('a manifest of 4 MB is streamed, not loaded into memory', async () => {
  const header = 'id,protocol,model,duration,prompt';
  const row = (n: number): string => `row-${n},c,vendor-h3-mini,5,${'a paper boat '.repeat(630)}${n}`;
  const path = join(freshFolder(), 'm.csv');
  writeFileSync(path, [header, ...Array.from({ length: 500 }, (_, n) => row(n)), ''].join('\n'));
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc') as () => void;
  // Resets the flag, because other tests share this process, and V8 refuses code that was compiled under other flags.
  setFlagsFromString('--no-expose-gc');
  const inUse = (): number => {
    gc();
    return process.memoryUsage().heapUsed / 1024 / 1024;
  };
  let [count, before] = [0, 0];
  const manifest = await openManifest(path);
  for await (const item of manifest.items()) {
    if (!('row' in item)) throw new Error(item.problems[0]?.message);
    count += 1;
    if (count === 100) before = inUse();
    if (count === 450) expect(inUse() - before).toBeLessThan(1);
  }
  expect(count).toBe(500);
});
