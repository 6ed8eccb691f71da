import { beforeEach, describe, expect, it } from 'vitest';
import { protocolsOfModel } from '../../src/flows/model-protocol.ts';
import type { CliJson, User } from '../support/cli.ts';
import { fakeMp4 } from '../support/film.ts';
import { runHereAs, userHere } from '../support/one-process.ts';
import { httpServer, says, sendJson, type HttpServer } from '../support/servers.ts';

describe('protocolsOfModel', () => {
  const listed = [
    { id: 'veo-3', protocols: ['a'] },
    { id: 'both', protocols: ['a', 'c'] },
    { id: 'plain', protocols: [] },
    { id: 'vendor-h3', protocols: ['b'] },
    { id: 'models/veo-9', protocols: ['a'] },
  ];
  const videoDefaults = { a: { plain: { duration: 5 } }, b: { plain: {}, veo: {} } };
  it.each([
    ['veo-3', ['a']],
    ['models/veo-3', ['a']],
    ['models/veo-9', ['a']],
    ['both', ['a', 'c']],
    ['vendor-h3', ['b']],
    ['vendor-h3-mini', ['c']],
    ['plain', ['a', 'b']],
    ['veo', ['b']],
    ['constructor', []],
    ['nowhere', []],
  ])('finds that %s is served by %j', (model, protocols) => {
    expect(protocolsOfModel(model, { videoDefaults }, listed)).toEqual(protocols);
  });
});

describe('the command line', () => {
  const film = fakeMp4();
  let server: HttpServer;
  let user: User;
  let posts: string[];

  beforeEach(async () => {
    posts = [];
    const data = [
      { id: 'veo-3', protocol: 'a' },
      { id: 'both', protocols: ['a', 'c'] },
      { id: 'vendor-h4', protocol: 'c' },
      { id: 'Video-B', model_versions: ['1.0'] },
      { id: 'speech-tts-2.0', supported_endpoint_types: ['tts', 'speech'] },
      { id: 'plain' },
      { id: 'text-1', supported_endpoint_types: ['openai-response'] },
    ];
    server = await httpServer((seen, response) => {
      if (seen.path === '/v1/models') says({ data })(seen, response);
      else if (seen.method === 'POST') {
        posts.push(seen.path);
        sendJson(
          response,
          seen.path === '/'
            ? { Response: { TaskId: 't1' } }
            : { id: 't1', name: 'models/veo-3/operations/1' },
        );
      } else if (seen.path.endsWith('/content')) response.end(film);
      else sendJson(response, { id: 't1', status: 'completed' });
    });
    user = userHere(server.url);
  });

  async function json(...args: string[]): Promise<CliJson> {
    return JSON.parse((await runHereAs(user, [...args, '--json'])).stdout) as CliJson;
  }

  it.each([
    ['veo-3', '/v1beta/models/veo-3:predictLongRunning'],
    ['Video-B', '/'],
    ['vendor-h4', '/v1/video/generations'],
  ])("submits a job for the model %s through the model's protocol", async (model, path) => {
    expect(await json('video', 'submit', 'a boat', '-m', model, '-d', '5')).toMatchObject({ exit_code: 0 });
    expect(posts).toEqual([path]);
  });

  it.each([
    [
      'speech-tts-2.0',
      ['tts'],
      'speech-tts-2.0 is a speech model. To convert text to speech: mgw tts TEXT -o FILE',
    ],
    ['text-1', ['responses'], 'text-1 is a text model. To send it a prompt: mgw responses INPUT -m MODEL'],
  ])('refuses the model %s, and suggests the command for it', async (model, command, text) => {
    const refused = await json('video', 'submit', 'a boat', '-m', model, '-d', '5');
    expect(refused).toMatchObject({ exit_code: 2, error: { next: ['mgw', ...command, '--help'] } });
    expect(refused.error?.message).toBe(text);
  });

  it("queries and saves a job through the job's protocol", async () => {
    await json('video', 'submit', 'a boat', '-m', 'vendor-h4', '-d', '5', '--key', 'k');
    expect(await json('video', 'status', '@k')).toMatchObject({ job: { protocol: 'c', state: 'succeeded' } });
    expect(await json('video', 'fetch', '@k', '-o', 'a.mp4')).toMatchObject({ exit_code: 0 });
  });

  it('imports a handle through the protocol of the model that created it', async () => {
    const found = await json('video', 'status', 'task-9', '-m', 'vendor-h4');
    expect(found).toMatchObject({ exit_code: 0, job: { protocol: 'c', handle: 'task-9' } });
  });

  it('refuses to submit a model through another protocol, and creates no job', async () => {
    const words = ['submit', "it's a boat", '-m', 'vendor-h4'];
    const { exit_code: code, error } = await json('video', 'a', ...words);
    expect(code, JSON.stringify(error)).toBe(2);
    expect(error).toMatchObject({
      code: 'usage',
      message: 'vendor-h4 is served by Protocol C, not by Protocol A.',
      next: ['mgw', 'video', 'c', ...words, '--json'],
    });
    expect(posts).toEqual([]);
    expect(await json('jobs', 'ls')).toMatchObject({ jobs: [] });
  });

  it.each([
    ['submit', ['a boat', '-m', 'both'], ['a', 'c']],
    ['submit', ['a boat', '-m', 'plain'], ['a', 'b', 'c']],
    ['status', ['task-9'], ['a', 'b', 'c']],
  ])('lists the possible commands for %s %j', async (verb, rest, protocols) => {
    const { exit_code: code, error } = await json('video', verb, ...rest);
    expect([code, posts]).toEqual([2, []]);
    const words = rest.map((word) => (word.includes(' ') ? `'${word}'` : word));
    const commands = protocols.map((name) => ['mgw video', name, verb, ...words, '--json'].join(' '));
    expect(error.message.split('\n').slice(1)).toEqual(commands);
  });

  it.each([['--seed', '5'], ['--no-audio']])(
    "refuses %s if the model's protocol does not support it",
    async (...flag) => {
      const { error } = await json('video', 'submit', 'a boat', '-m', 'vendor-h4', ...flag);
      expect(error.message).toContain('is not a flag of Protocol C, which serves vendor-h4');
      expect(posts).toEqual([]);
    },
  );
});
