import { readFileSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { clips, openScene, type Scene } from './scene.ts';

let scene: Scene;
beforeAll(async () => {
  scene = await openScene();
});
beforeEach(() => scene.gateway.requests.splice(0));
afterAll(() => scene.gateway.close());

describe('a batch plan', () => {
  it('lists all errors by row and line, and sends nothing', async () => {
    const text = [
      'id,protocol,model,duration,prompt,output',
      'a,c,vendor-h3-mini,4,a boat,',
      'b,c,vendor-h3-mini,5,a boat,../b.mp4',
      'c,c,vendor-h3-mini,5,a cat,x.mp4',
      'd,c,vendor-h3-mini,5,a dog,X.mp4',
      'c,c,vendor-h3-mini,5,a fox,',
      'e,z,vendor-h3-mini,5,a fox,',
      'f,tts,,,,',
      'g,c,vendor-h3-mini,5,a cow,{colour}.mp4',
      'b,c,vendor-h3-mini,5,a hen,',
      'a,c,vendor-h3-mini,5,a pig,',
    ].join('\n');
    const { code, stderr } = await scene.batch('plan', scene.file('bad.csv', text));
    expect(code).toBe(2);
    const lines = [...stderr.matchAll(/bad\.csv:(\d+): (.*)/g)].map(([, line, what = '']) => [line, what]);
    expect(lines).toEqual([
      ['2', expect.stringMatching(/^duration: 4 is not allowed/)],
      ['3', expect.stringMatching(/^output: .*not in the output folder/)],
      ['5', expect.stringMatching(/^output: .*also the output of line 4$/)],
      ['6', 'id: duplicate id "c" (also on line 4)'],
      ['7', expect.stringMatching(/^protocol: z is not allowed/)],
      ['8', expect.stringMatching(/^text or file is required/)],
      ['9', expect.stringMatching(/^output: no such placeholder: \{colour\}/)],
      ['10', 'id: duplicate id "b" (also on line 3)'],
      ['11', 'id: duplicate id "a" (also on line 2)'],
    ]);
    expect(scene.gateway.requests).toEqual([]);
  });

  it('refuses an output that is hidden or too long, or that contains control characters', async () => {
    const control = /line break or a control/;
    const hidden = /starts with a dot/;
    const long = /longer than 1024 bytes/;
    const outputs: [string, RegExp][] = [
      ['a\nb.mp4', control],
      ['a\u202e4pm.sh', control],
      ['a\0.mp4', control],
      ['\u001b[31m.mp4', control],
      ['.bashrc', hidden],
      ['x/.git/hooks', hidden],
      [`${'a/'.repeat(50_000)}a.mp4`, long],
      ['{id}'.repeat(1000), long],
      ['{model}'.repeat(140), long],
    ];
    const row = { protocol: 'c', model: 'vendor-h3-mini', duration: 5 };
    const rows = outputs.map(([output], n) => JSON.stringify({ ...row, prompt: `boat ${n}`, output }));
    const { exit_code, problems } = await scene.read('plan', scene.file('o.jsonl', rows.join('\n')));
    expect(exit_code).toBe(2);
    expect(problems).toEqual(
      outputs.map(([, why], n) => ({
        field: 'output',
        line: n + 1,
        message: expect.stringMatching(why) as string,
      })),
    );
  });

  it('suggests {id} if --output gives two rows the same file', async () => {
    const file = scene.file(
      'same.csv',
      'protocol,model,duration,prompt\nc,vendor-h3-mini,5,a boat\nc,vendor-h3-mini,5,a cat\n',
    );
    const { code, stderr } = await scene.batch('plan', file, '-o', 'clip.mp4');
    expect([code, stderr]).toEqual([2, expect.stringContaining('line 2; use {id} in --output')]);
  });

  it('refuses an output that is one of the files of an earlier row, even if that row is done', async () => {
    scene.gateway.samples = 2;
    const head = 'id,protocol,model,duration,sample-count,prompt\nshot,a,video-a,5,2,a boat\n';
    const file = scene.file('shots.csv', head);
    const both = `${head}shot-1,a,video-a,5,1,a cat\n`;
    const problem = {
      line: 3,
      message: expect.stringMatching(/shot-1\.mp4 is also the output of line 2$/) as string,
    };
    scene.file('shots.csv', both);
    expect(await scene.read('plan', file)).toMatchObject({ exit_code: 2, problems: [problem] });
    scene.file('shots.csv', head);
    for (const states of [{ done: 1 }, { done: 1 }])
      expect(await scene.read('run', file)).toMatchObject({ exit_code: 0, batch: { states } });
    scene.file('shots.csv', both);
    expect(await scene.read('run', file)).toMatchObject({ exit_code: 2, problems: [problem] });
  });

  it.each([
    ['that no row may have', 'duration: [5, five]', 4],
    ['that its model does not accept', 'duration: [5, 99]', 2],
  ])(
    'counts every row with a matrix value %s as invalid, but reports the value once',
    async (_, list, line) => {
      const text = [
        'defaults: {protocol: c, model: vendor-h3-mini, duration: 5}',
        'matrix:',
        '  prompt: [a boat, a cat, a dog]',
        `  ${list}`,
      ];
      const file = scene.file('matrix.yaml', text.join('\n'));
      const { batch, problems } = await scene.read('plan', file);
      expect(batch).toMatchObject({ rows: 6, bad: 3, states: { new: 3 } });
      expect(problems).toMatchObject([{ line }]);
    },
  );

  it('requests the model list once for all rows that need it, and reports that a price is unknown', async () => {
    const rows = ['a boat', 'a cat', 'a dog'].map((prompt) => `b,Kling,5,${prompt}`);
    const file = scene.file('b.csv', ['protocol,model,duration,prompt', ...rows].join('\n'));
    const { batch, cost } = await scene.read('plan', file);
    expect([batch.states, cost.at_most]).toMatchObject([{ new: 3 }, 'unknown']);
    expect(scene.gateway.requests.map(({ method, path }) => `${method} ${path}`)).toEqual(['GET /v1/models']);
  });

  it('gives each piece of advice once, in plan and in the commands that pay, and never about rows that are done', async () => {
    const text = (prompt: string): string =>
      [
        'id,protocol,model,duration,prompt,resolution,aspect_ratio',
        `advice-one,c,vendor-h3-mini,5,${prompt},768P,16:9`,
        `advice-two,c,vendor-h3-mini,5,${prompt} again,768P,16:9`,
      ].join('\n');
    const file = scene.file('advice.csv', text('a boat'));
    const adviceOf = async (...command: string[]): Promise<string[]> =>
      (await scene.batch(command[0] ?? '', file, ...command.slice(1))).stderr.match(/advice\.csv:.*/g) ?? [];
    const once = ['advice.csv:2: 768P is converted to 720p.'];
    expect(await adviceOf('plan')).toEqual(once);
    expect(await adviceOf('run')).toEqual(once);
    expect([await adviceOf('plan'), await adviceOf('run')]).toEqual([[], []]);
    scene.file('advice.csv', text('a ship'));
    expect([await adviceOf('plan'), await adviceOf('retry', '--changed')]).toEqual([once, once]);
  });

  it('names the fields of a speech row that are not in the specification', async () => {
    const row = { protocol: 'tts', text: 'Hello', speaker: 'v', 'set.req_params.ssml': 'x' };
    const { stderr } = await scene.batch('plan', scene.file('speech.jsonl', JSON.stringify(row)));
    expect(stderr).toContain(
      'speech.jsonl:1: Fields that are not in the specification are sent unchanged: req_params.ssml.',
    );
  });

  it('refuses a frame that is named by its hash', async () => {
    const image = `sha256:${'a'.repeat(64)}.mp4#last`;
    const row = { protocol: 'c', model: 'vendor-h3-mini', duration: 5, prompt: 'a boat', image };
    const { code, stderr } = await scene.batch('plan', scene.file('frame.jsonl', JSON.stringify(row)));
    expect([code, stderr]).toEqual([2, expect.stringContaining('is a frame of an earlier job')]);
  });

  it('gives no advice about a value from a file, because it would show the value', async () => {
    const body = { model: 'vendor-h3-mini', prompt: 'x', duration: 5, aspect_ratio: '16:9', hidden: 1 };
    const bodyFile = scene.file('body.json', JSON.stringify(body));
    const ofFile = scene.file('of-file.csv', `id,protocol,body\nsecret,c,@${bodyFile}\n`);
    const inRow = scene.file('in-row.jsonl', JSON.stringify({ id: 'shown', protocol: 'c', body }));
    const [hidden, shown] = [await scene.batch('plan', ofFile), await scene.batch('plan', inRow)];
    expect([hidden.code, hidden.stderr]).toEqual([0, expect.not.stringContaining('hidden')]);
    expect([shown.code, shown.stderr]).toEqual([0, expect.stringContaining('hidden')]);
  });

  it('reports rows with the same request, and refuses such rows if they have no ids', async () => {
    const named = await scene.batch('plan', scene.file('same.csv', clips(['a', 'a boat'], ['b', 'a boat'])));
    expect(named.code).toBe(0);
    expect(named.stderr).toContain('same.csv:3: same request as line 2');
    const nameless = scene.file('nameless.csv', clips(['', 'a boat'], ['', 'a boat']));
    expect(await scene.batch('plan', nameless)).toMatchObject({ code: 2 });
  });

  it("lists each row's output path, computed from the template", async () => {
    const file = scene.file('out.csv', `${clips(['a', 'A boat: at sea!'])}b,c,vendor-h3-mini,5,"../../x"\n`);
    const { rows } = await scene.read(
      'plan',
      file,
      '-o',
      scene.at('clips/{name}/{index}-{slug}-{id}-{model}-{protocol}.{ext}'),
    );
    expect(rows.map(({ output }) => output)).toEqual([
      scene.at('clips/out/1-a-boat-at-sea-a-vendor-h3-mini-c.mp4'),
      scene.at('clips/out/2-x-b-vendor-h3-mini-c.mp4'),
    ]);
  });

  it('refuses to overwrite a file that does not belong to the batch, unless --force is given', async () => {
    const file = scene.file('taken.csv', clips(['taken', 'a boat']));
    writeFileSync(scene.at('taken.mp4'), 'mine');
    expect((await scene.batch('plan', file)).stderr).toMatch(/taken\.csv:2: output: .* already exists/);
    expect(await scene.batch('run', file, '--force')).toMatchObject({ code: 0 });
    expect(readFileSync(scene.at('taken.mp4'))).toEqual(scene.gateway.video);
  });

  it("identifies a row without an id by its request, regardless of the rows' order", async () => {
    const ids = async (...prompts: string[]): Promise<string[]> => {
      const text = clips(...prompts.map((prompt): [string, string] => ['', prompt]));
      return (await scene.read('plan', scene.file('hash.csv', text))).rows.map(({ id }) => id);
    };
    const [boat, cat] = await ids('a boat', 'a cat');
    expect(await ids('a dog', 'a cat', 'a boat')).toEqual([expect.any(String), cat, boat]);
  });
});
