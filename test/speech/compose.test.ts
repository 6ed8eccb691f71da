import { describe, expect, test } from 'vitest';
import { checkSpeech, composeSpeech, type SpeechFields } from '../../src/speech/compose.ts';
import { splitText } from '../../src/speech/split.ts';
import { sessionIn } from '../flows/flow-deps.ts';
import { freshFolder } from '../support/servers.ts';

const params = (more: object): { req_params: object } => ({ req_params: { text: 'Hello', ...more } });

describe('a speech body', () => {
  test.each([
    [params({})],
    [params({ speaker: 'zh_female_x', audio_params: { format: 'mp3', sample_rate: 24_000 } })],
    [params({ audio_params: { format: 'aac', speech_rate: 10 }, additions: '{}' })],
    [params({ text: '你好' })],
    [params({ text: '7' })],
  ])('is valid: %j', (body) => {
    expect(checkSpeech(body as never)).toEqual([]);
  });

  test.each([
    [{}, 'req_params'],
    [params({ spekaer: 'a' }), 'req_params.spekaer'],
    [params({ audio_params: 'mp3' }), 'req_params.audio_params'],
    [params({ text: '' }), 'req_params.text'],
    [params({ text: ' …! ' }), 'req_params.text'],
    [params({ text: 7 }), 'req_params.text'],
    [params({ speaker: ' ' }), 'req_params.speaker'],
    [params({ speaker: 5 }), 'req_params.speaker'],
    [params({ audio_params: { format: 'wav' } }), 'req_params.audio_params.format'],
    [params({ audio_params: { sample_rate: '24000' } }), 'req_params.audio_params.sample_rate'],
    [params({ audio_params: { sample_rate: 0.5 } }), 'req_params.audio_params.sample_rate'],
    [{ ...params({}), model: 'speech-tts-2.0' }, 'model'],
  ])('is invalid: %j', (body, field) => {
    expect(checkSpeech(body as never)).toMatchObject([{ field }]);
  });

  test('is valid if, and only if, the splitter finds text that can be spoken', () => {
    for (const text of ['a', '!', '😀', '€', '. . .', '其', '+', '\n'])
      expect([text, splitText(text, 10).length > 0]).toEqual([
        text,
        checkSpeech(params({ text }) as never).length === 0,
      ]);
  });
});

test.each([
  ['a', {}, {}, undefined],
  ['a.wav', {}, { format: 'pcm' }, 'wav'],
  ['a.mp3', { sampleRate: 8000 }, { format: 'mp3', sample_rate: 8000 }, undefined],
  ['a', { set: ['req_params.audio_params.sample_rate=8000'] }, { sample_rate: 8000 }, undefined],
])(
  'a speech body for %s with the flags %j is identified without its defaults',
  async (output, flags, audio, variant) => {
    const defaults = { format: 'wav', sampleRate: 16_000, speaker: 'v1' };
    const settings = await sessionIn(freshFolder()).settings();
    const composed = composeSpeech('Hello', output, { ...flags, defaults }, settings);
    expect([composed.userBody, composed.variant]).toEqual([params({ audio_params: audio }), variant]);
    const { format = 'pcm', sample_rate: rate = 16_000 } = audio as { format?: string; sample_rate?: number };
    expect(composed.body).toEqual(params({ speaker: 'v1', audio_params: { format, sample_rate: rate } }));
  },
);

test('a speech body contains additional parameters by their exact names', async () => {
  const settings = await sessionIn(freshFolder()).settings();
  const more = { 'voice.style': 1, 'a=b': 1, 'x[0]': 'y', speaker: 'v2', additions: { emotion: 'calm' } };
  const { body, userBody } = composeSpeech('Hello', 'a.mp3', { speaker: 'v1', params: more }, settings);
  expect(body).toEqual(
    params({
      ...more,
      audio_params: { format: 'mp3', sample_rate: 24_000 },
      additions: '{"emotion":"calm"}',
    }),
  );
  expect(userBody).toMatchObject({ req_params: { 'voice.style': 1, 'a=b': 1, 'x[0]': 'y' } });
});

describe('the speech format', () => {
  const formatFor = async (
    format: string | undefined,
    output: string,
    more: SpeechFields = {},
  ): Promise<object> => {
    const settings = await sessionIn(freshFolder()).settings();
    return composeSpeech('Hello', output, { format, ...more }, settings).format;
  };

  test.each([
    [undefined, 'a.mp3', 'mp3', 'mp3', false],
    [undefined, 'a.WAV', 'wav', 'pcm', true],
    [undefined, 'a.pcm', 'pcm', 'pcm', false],
    [undefined, 'a.ogg', 'ogg_opus', 'ogg_opus', false],
    [undefined, 'a.opus', 'ogg_opus', 'ogg_opus', false],
    [undefined, 'a', 'mp3', 'mp3', false],
    [undefined, '-', 'mp3', 'mp3', false],
    ['wav', 'a.mp3', 'wav', 'pcm', true],
    ['aac', 'a.aac', 'aac', 'aac', false],
  ])('follows --format %s and the output %s: %s', async (named, output, name, wire, wav) => {
    expect(await formatFor(named, output)).toMatchObject({ name, wire, wav });
  });

  test.each([
    ['a.wav', 'format=mp3', { name: 'mp3', mime: 'audio/mpeg', wav: false }],
    ['a.mp3', 'format=pcm', { name: 'pcm', mime: 'audio/L16', wav: false }],
    ['a.wav', 'format=pcm', { name: 'wav', mime: 'audio/wav', wav: true }],
  ])('follows the body rather than the output %s if --set specifies %s', async (output, set, format) => {
    const fields = { set: [`req_params.audio_params.${set}`] };
    expect(await formatFor(undefined, output, fields)).toMatchObject(format);
  });

  test('is the default if the file name has no known extension', async () => {
    const defaults = { format: 'wav' };
    expect(await formatFor(undefined, 'a', { defaults })).toMatchObject({ name: 'wav' });
    expect(await formatFor(undefined, 'a.mp3', { defaults })).toMatchObject({ name: 'mp3' });
  });

  test('is refused if the file extension belongs to an unsupported format', async () => {
    await expect(formatFor(undefined, 'a.flac')).rejects.toThrow(/\.flac/);
  });
});
