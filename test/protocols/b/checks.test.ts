import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Json, JsonObject } from '../../../src/json.ts';
import { advise, check, unsetFlags } from '../../../src/protocols/b/checks.ts';
import { b } from '../../../src/protocols/b/protocol.ts';
import { violationMessage } from '../../../src/protocols/violations.ts';
import { goodBody } from './support.ts';

function fieldsOf(body: JsonObject): string[] {
  return check(body).map(({ field }) => field);
}

function withOutput(members: JsonObject): JsonObject {
  return { ...goodBody, OutputConfig: members };
}

function withFile(members: JsonObject): JsonObject {
  const file = { Type: 'Url', Url: 'https://pics.example/1.png', Category: 'Image', Usage: 'Reference' };
  return { ...goodBody, FileInfos: [{ ...file, ...members }] };
}

test('a valid Protocol B body passes the check', () => {
  expect(check(goodBody)).toEqual([]);
  expect(check(withFile({}))).toEqual([]);
  expect(check({ ...goodBody, ExtInfo: '{"ExtVideoParameters":"{\\"ReturnUsage\\":true}"}' })).toEqual([]);
});

test('a Protocol B body with unlisted fields passes the check', () => {
  expect(check({ ...goodBody, Seed: 7, SceneType: 'x', OutputConfig: { PersonGeneration: 'x' } })).toEqual(
    [],
  );
});

describe('a missing or blank field of a Protocol B body', () => {
  test.each(['ModelName', 'ModelVersion', 'Prompt'])('is reported if it is %s', (field) => {
    for (const value of ['', ' \n', null, 7, {}])
      expect(fieldsOf({ ...goodBody, [field]: value })).toContain(field);
    expect(check({ ...goodBody, [field]: undefined })).toMatchObject([
      { field, value: '', flag: expect.stringMatching(/^--/) as string },
    ]);
  });

  test('is accepted if it is a missing Prompt and the body has an image, but not if it is a blank Prompt', () => {
    const body = withFile({});
    body['Prompt'] = undefined;
    expect(check(body)).toEqual([]);
    expect(fieldsOf({ ...body, Prompt: ' ' })).toEqual(['Prompt']);
    expect(fieldsOf({ ...body, FileInfos: [] })).toEqual(['Prompt']);
  });

  test('is reported if it is NegativePrompt, which must not be blank', () => {
    expect(fieldsOf({ ...goodBody, NegativePrompt: '' })).toEqual(['NegativePrompt']);
  });
});

describe('a misspelt field name', () => {
  test.each([
    ['modelName', 'ModelName'],
    ['model', 'ModelName'],
    ['model_version', 'ModelVersion'],
    ['negative-prompt', 'NegativePrompt'],
    ['output_config', 'OutputConfig'],
    ['Duration', 'OutputConfig.Duration'],
    ['resolution', 'OutputConfig.Resolution'],
    ['aspect_ratio', 'OutputConfig.AspectRatio'],
    ['TaskId', 'none'],
  ])('is reported with the correct name in the body (%s: %s)', (name, right) => {
    expect(check({ ...goodBody, [name]: 'x' })).toMatchObject([
      { field: name, allowed: expect.stringContaining(right) as string },
    ]);
  });

  test.each([
    ['duration', 'OutputConfig.Duration'],
    ['aspectRatio', 'OutputConfig.AspectRatio'],
    ['Prompt', 'Prompt'],
  ])('is reported with the correct name in OutputConfig (%s: %s)', (name, right) => {
    expect(check(withOutput({ [name]: 5 }))).toMatchObject([
      { field: `OutputConfig.${name}`, allowed: expect.stringContaining(right) as string },
    ]);
  });

  test.each(['type', 'category', 'USAGE'])('is reported in FileInfos: %s', (name) => {
    expect(fieldsOf(withFile({ [name]: 'x' }))).toEqual([`FileInfos.0.${name}`]);
  });

  test('is reported in FileInfos together with the missing field: url', () => {
    const body = { ...goodBody, FileInfos: [{ Type: 'Url', url: 'https://x.example/1' }] };
    expect(fieldsOf(body)).toEqual(['FileInfos.0.Url', 'FileInfos.0.url']);
  });
});

describe('fields that Protocol B refuses', () => {
  const names = [
    'SubAppId',
    'FileId',
    'ObjectId',
    'LastFrameFileId',
    'draft_task_id',
    'SecretId',
    'SecretKey',
  ];
  const variants = ['SUBAPPID', 'sub_app_id', 'secretkey', 'draftTaskId', 'DraftTaskId'];
  test.each([...names, ...variants])('include %s at any depth', (name) => {
    const member = { [name]: 1 };
    const places: [JsonObject, string][] = [
      [member, name],
      [{ Other: [[{ Deep: member }]] }, `Other.0.0.Deep.${name}`],
      [{ ExtInfo: JSON.stringify(member) }, `ExtInfo.${name}`],
      [
        { ExtInfo: JSON.stringify({ ExtVideoParameters: JSON.stringify({ a: [member] }) }) },
        `ExtInfo.ExtVideoParameters.a.0.${name}`,
      ],
      [{ ExtInfo: JSON.stringify({ x: JSON.stringify(JSON.stringify(member)) }) }, `ExtInfo.x.${name}`],
    ];
    for (const [members, field] of places) expect(fieldsOf({ ...goodBody, ...members })).toEqual([field]);
  });

  test('do not include a number with many digits in ExtInfo', () => {
    expect(
      check({ ...goodBody, ExtInfo: '{"seed":12345678901234567890,"x":"12345678901234567890"}' }),
    ).toEqual([]);
  });

  test('are reported without quoting a credential', () => {
    expect(violationMessage(check({ ...goodBody, SecretKey: 'AKIDabc' }))).not.toContain('AKIDabc');
  });

  test('are accepted as words of a prompt', () => {
    expect(check({ ...goodBody, Prompt: '{"SubAppId":1}' })).toEqual([]);
  });

  test('are found in a body that is nested too deeply for recursion', () => {
    const depth = 20_000;
    let nested: Json = { SubAppId: 1 };
    for (let level = 0; level < depth; level += 1) nested = [nested];
    expect(check({ ...goodBody, Deep: nested })).toHaveLength(1);
  });
});

describe('FileInfos', () => {
  test.each([null, {}, 'x', 7])('must be a list (refused: %j)', (FileInfos) => {
    expect(fieldsOf({ ...goodBody, FileInfos })).toContain('FileInfos');
  });

  test.each([null, 'https://x.example/1.png', []])('can contain only objects (refused: %j)', (entry) => {
    expect(fieldsOf({ ...goodBody, FileInfos: [entry] })).toEqual(['FileInfos.0']);
  });

  test.each([
    undefined,
    null,
    7,
    '',
    'file:///etc/passwd',
    'data:image/png;base64,AA',
    'http://127.0.0.1/x',
    'https://u:p@x.example/1',
  ])(
    'must have public http(s) URLs, and the error for another URL contains the flag (refused: %j)',
    (Url) => {
      expect(check(withFile({ Url }))).toMatchObject([{ field: 'FileInfos.0.Url', flag: '--reference' }]);
      expect(check(withFile({ Url, Usage: 'FirstFrame' }))).toMatchObject([{ flag: '--first-frame' }]);
    },
  );

  test.each([
    ['Type', 'url', 'Url'],
    ['Category', 'IMAGE', 'Image'],
    ['Usage', 'firstFrame', 'FirstFrame'],
    ['Usage', '', 'FirstFrame, Reference'],
    ['Type', 7, 'Url'],
  ])('are refused if %s is %j; allowed: %s', (name, value, allowed) => {
    expect(check(withFile({ [name]: value }))).toMatchObject([{ field: `FileInfos.0.${name}`, allowed }]);
  });

  test('cause advice rather than an error if a value is not in the specification', () => {
    const body = withFile({ Category: 'Video', Usage: undefined });
    expect(check(body)).toEqual([]);
    expect(advise(body)).toEqual([
      'FileInfos.0.Category is Video; the specification lists Image.',
      'FileInfos.0.Usage is missing; the specification lists FirstFrame and Reference.',
    ]);
  });
});

describe('OutputConfig', () => {
  test.each([null, [], 'x'])('must be an object (refused: %j)', (OutputConfig) => {
    expect(fieldsOf({ ...goodBody, OutputConfig })).toEqual(['OutputConfig']);
  });

  test.each([
    ['StorageMode', ['Temporary'], ['temporary', 'Permanent', '', null, 7]],
    ['Resolution', ['720P', '1080P', '2K', '768P'], ['720p', '1080p', '4k', '', 720, null]],
    ['Duration', [1, 5, 15], [0, -1, 4.5, '5', null, true, 2 ** 60]],
    [
      'AspectRatio',
      ['16:9', '9:16', '21:9', 'adaptive'],
      ['16x9', '16:9 ', '0:9', '16:', ':', '', 1.78, null],
    ],
    ['AudioGeneration', ['Enabled', 'Disabled'], ['enabled', 'on', true, null, '']],
  ])('accepts only valid values of %s', (name, good, bad) => {
    for (const value of good) expect(check(withOutput({ [name]: value }))).toEqual([]);
    for (const value of bad)
      expect(check(withOutput({ [name]: value }))).toMatchObject([
        { field: `OutputConfig.${name}`, flag: expect.stringMatching(/^--/) as string },
      ]);
  });
});

describe('ExtInfo', () => {
  test.each<[Json, string]>([
    [{ ExtVideoParameters: '{"ReturnUsage":true}' }, 'ExtInfo'],
    [{ ExtVideoParameters: { ReturnUsage: true } }, 'ExtInfo'],
    ['', 'ExtInfo'],
    ['x', 'ExtInfo'],
    ['[]', 'ExtInfo'],
    ['"{}"', 'ExtInfo'],
    [null, 'ExtInfo'],
    ['{"ExtVideoParameters":{"ReturnUsage":true}}', 'ExtInfo.ExtVideoParameters'],
    ['{"ExtVideoParameters":"x"}', 'ExtInfo.ExtVideoParameters'],
    ['{"ExtVideoParameters":"[]"}', 'ExtInfo.ExtVideoParameters'],
    ['{"ExtVideoParameters":null}', 'ExtInfo.ExtVideoParameters'],
    ['{"extVideoParameters":"{}"}', 'ExtInfo.extVideoParameters'],
    ['{"ReturnUsage":true}', 'ExtInfo.ReturnUsage'],
    ['{"ExtVideoParameters":"{\\"ReturnUsage\\":\\"true\\"}"}', 'ExtInfo.ExtVideoParameters.ReturnUsage'],
    ['{"ExtVideoParameters":"{\\"returnUsage\\":true}"}', 'ExtInfo.ExtVideoParameters.returnUsage'],
  ])('is refused if it is %j (field in the error: %s)', (ExtInfo, field) => {
    expect(check({ ...goodBody, ExtInfo })).toMatchObject([{ field, flag: '--ext-info' }]);
  });

  test.each<Json>([
    { ExtVideoParameters: { ReturnUsage: true, n: 1 }, other: 2 },
    '{"ExtVideoParameters":{"ReturnUsage":true,"n":1},"other":2}',
  ])('is refused if it is serialized only once (%j), and the error contains the correct form', (ExtInfo) => {
    const [violation] = check({ ...goodBody, ExtInfo });
    const right = { ExtVideoParameters: '{"ReturnUsage":true,"n":1}', other: 2 };
    expect(violation?.allowed).toContain(`"ExtInfo":${JSON.stringify(JSON.stringify(right))}`);
  });

  test('is accepted with other members of any kind', () => {
    expect(check({ ...goodBody, ExtInfo: '{"a":{"b":1}}' })).toEqual([]);
  });
});

describe('ReturnUsage', () => {
  const withUsage = { ...goodBody, ReturnUsage: true };

  test('becomes the only member of ExtInfo if the body has no ExtInfo', () => {
    expect(b.normalize(withUsage)).toEqual({
      ...goodBody,
      ExtInfo: '{"ExtVideoParameters":"{\\"ReturnUsage\\":true}"}',
    });
  });

  test('is added to ExtInfo without changing the existing members', () => {
    const ExtInfo = JSON.stringify({ a: 1, ExtVideoParameters: JSON.stringify({ n: 2 }) });
    const merged = JSON.stringify({ a: 1, ExtVideoParameters: JSON.stringify({ n: 2, ReturnUsage: true }) });
    expect(b.normalize({ ...withUsage, ExtInfo })).toEqual({ ...goodBody, ExtInfo: merged });
    expect(b.normalize({ ...withUsage, ExtInfo: '{"a":1}' })['ExtInfo']).toContain('"a":1');
  });

  test('appears in ExtInfo only once, even if the body sets it in both places', () => {
    const once = b.normalize(withUsage);
    expect(b.normalize({ ...once, ReturnUsage: true })).toEqual(once);
  });

  test('is removed from the body if it is false', () => {
    expect(b.normalize({ ...goodBody, ReturnUsage: false })).toEqual(goodBody);
  });

  test("is moved into ExtInfo without changing the caller's body", () => {
    const copy = structuredClone(withUsage);
    b.normalize(copy);
    expect(copy).toEqual(withUsage);
  });

  test.each([
    ['x', 'ExtInfo'],
    [{}, 'ExtInfo'],
    ['{"ExtVideoParameters":{}}', 'ExtInfo.ExtVideoParameters'],
    ['{"seed":12345678901234567890}', 'ReturnUsage'],
  ])('is not added to ExtInfo if ExtInfo is %j (field in the error: %s)', (ExtInfo, field) => {
    const body = b.normalize({ ...withUsage, ExtInfo });
    expect(body['ExtInfo']).toEqual(ExtInfo);
    expect(fieldsOf(body)).toEqual([field]);
  });

  test.each(['true', 1, null])('is refused if it is %j, because it must be a boolean', (ReturnUsage) => {
    expect(fieldsOf(b.normalize({ ...goodBody, ReturnUsage }))).toEqual(['ReturnUsage']);
  });
});

describe('advice for Protocol B', () => {
  test("lists the flags for which the model's defaults apply", () => {
    expect(unsetFlags(goodBody)).toEqual([]);
    expect(unsetFlags({ ...goodBody, OutputConfig: { Duration: 5 } })).toEqual(['resolution', 'audio']);
    expect(unsetFlags({ ModelName: 'x' })).toEqual(['duration', 'resolution', 'audio']);
  });
});

test('any Protocol B body is normalized and checked without throwing', () => {
  const names = ['FileInfos', 'OutputConfig', 'ExtInfo', 'ReturnUsage', 'Prompt', 'ModelName'];
  fc.assert(
    fc.property(fc.jsonValue(), fc.constantFrom(...names), (value, name) => {
      const body = b.normalize({ ...goodBody, [name]: value });
      check(body);
      advise(body);
      b.modelOf(body);
    }),
    { numRuns: 50 },
  );
});

test('a normalized Protocol B body passes the check', () => {
  const dictionary = fc.dictionary(fc.string(), fc.constantFrom<Json>(1, 'x', true, null));
  fc.assert(
    fc.property(dictionary, (members) => {
      const before = { ...goodBody, ExtInfo: JSON.stringify(members) };
      fc.pre(check(before).length === 0);
      expect(check(b.normalize({ ...before, ReturnUsage: true }))).toEqual([]);
    }),
    { numRuns: 30 },
  );
});
