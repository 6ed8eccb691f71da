import { describe, expect, test } from 'vitest';
import { readBill } from '../../src/sandbox/bill.ts';
import { renderSpeech } from '../../src/sandbox/media/speech.ts';
import { sandbox, type TestSandbox } from './harness.ts';
import { readMp3 } from './media/read-mp3.ts';

const path = '/api/v3/tts/unidirectional';
const text = 'Grüße, {"Welt"} / 你好。';

interface Spoken {
  status: number;
  headers: Headers;
  body: string;
}

async function speak(
  box: TestSandbox,
  params: object,
  headers: Record<string, string> = {},
): Promise<Spoken> {
  const wanted = {
    'X-Api-Key': box.key,
    'X-Api-Resource-Id': 'speech-tts-2.0',
    'Content-Type': 'application/json; charset=utf-8',
    'X-Control-Require-Usage-Tokens-Return': '*',
    ...headers,
  };
  const sent = Object.fromEntries(Object.entries(wanted).filter(([, value]) => value !== ''));
  const body = JSON.stringify({ req_params: params });
  const response = await fetch(box.url + path, { method: 'POST', headers: sent, body });
  return { status: response.status, headers: response.headers, body: await response.text() };
}

interface Frame {
  code: number;
  message: string;
  data?: string | null;
  usage?: { text_words: number };
  sentence?: { text: string };
}

/** Reads frames independently of mgw's splitter, by trying every possible end. */
function framesOf(body: string): Frame[] {
  const frames: Frame[] = [];
  for (let rest = body.trim(); rest !== ''; rest = rest.trim()) {
    let end = rest.indexOf('}') + 1;
    for (; end > 0; end = rest.indexOf('}', end) + 1) {
      try {
        frames.push(JSON.parse(rest.slice(0, end)) as Frame);
        break;
      } catch {
        continue;
      }
    }
    if (end === 0) throw new Error(`no frame in ${rest.slice(0, 50)}`);
    rest = rest.slice(end);
  }
  return frames;
}

const audioOf = (frames: Frame[]): Buffer =>
  Buffer.concat(frames.map(({ data }) => Buffer.from(data ?? '', 'base64')));

describe('a sandbox speech stream', () => {
  test('contains, in each format, the whole audio and an end frame, and is billed for its characters', async () => {
    const box = await sandbox();
    for (const format of ['mp3', 'pcm', 'wav', 'ogg_opus'] as const) {
      const answer = await speak(box, { text, audio_params: { format, sample_rate: 16_000 } });
      const frames = framesOf(answer.body);
      expect(answer.status).toBe(200);
      expect(audioOf(frames)).toEqual(Buffer.from(renderSpeech({ text, format, sampleRate: 16_000 })));
      expect(frames[0]).toMatchObject({ code: 0, data: null, sentence: { text } });
      const end = { code: 20_000_000, message: 'ok', data: null, usage: { text_words: 18 } };
      expect(frames.at(-1)).toEqual(end);
      expect(answer.headers.get('x-tt-logid')).toMatch(/^[0-9A-F]{24}$/);
    }
    const line = { area: 'tts', model: 'speech-tts-2.0', characters: 18, amount: 0.27 };
    expect(readBill(box.stateDir)).toMatchObject([line, line, line, line]);
  });

  test('contains MP3 at 24,000 Hz by default, usage only on request, and adjacent and separated frames', async () => {
    const box = await sandbox();
    const { body } = await speak(
      box,
      { text: 'a'.repeat(100) },
      { 'X-Control-Require-Usage-Tokens-Return': '' },
    );
    const frames = framesOf(body);
    expect(readMp3(audioOf(frames))[0]).toMatchObject({ sampleRate: 24_000 });
    expect(frames.at(-1)).not.toHaveProperty('usage');
    expect(body).toMatch(/\}\{/);
    expect(body).toMatch(/\}\r\n\{/);
  });

  test('uses an existing voice, or a default voice if none is requested', async () => {
    const box = await sandbox({ voices: ['zh_female_real'] });
    const ends = ['en_female_1', 'zh_male_1', 'zh_female_real', undefined].map(async (speaker) => {
      return framesOf((await speak(box, { text: 'Hi', speaker })).body).at(-1)?.code;
    });
    expect(await Promise.all(ends)).toEqual([20_000_000, 20_000_000, 20_000_000, 20_000_000]);
    const listed = await box.call('GET', '/v1/models/speech-tts-2.0');
    expect(listed.at('voices')).toContain('zh_female_real');
  });
});

describe('a speech request to the sandbox', () => {
  const refusals: [string, object, Record<string, string>, number, string?][] = [
    ['a wrong key', {}, { 'X-Api-Key': 'nobody' }, 401],
    ['another header for the key', {}, { 'X-Api-Key': '', Authorization: 'Bearer sandbox-key' }, 401],
    ['a wrong resource', {}, { 'X-Api-Resource-Id': 'speech-tts-1.0' }, 403, 'header.code'],
    ['a voice that is not authorised', { speaker: 'forbidden-voice' }, {}, 403, 'code'],
    ['an unknown voice', { speaker: 'nobody' }, {}, 400, 'code'],
    ['an empty voice', { speaker: '' }, {}, 400, 'code'],
    ['a text with the word for a refused voice', { text: 'Hi [voice-denied]' }, {}, 403, 'code'],
    ['no balance', { text: 'Hi [no-balance]' }, {}, 403, 'error.code'],
    ['no JSON content type', {}, { 'Content-Type': 'text/plain' }, 400, 'code'],
  ];
  const errorFrames: [string, object, number][] = [
    ['no text', {}, 45_002_001],
    ['blank text', { text: ' …!' }, 45_002_001],
    ['an unknown format', { text: 'Hi', audio_params: { format: 'flac' } }, 45_000_001],
    ['an odd sample rate', { text: 'Hi', audio_params: { sample_rate: 12_345 } }, 45_000_001],
  ];
  test('is refused at no charge, with an HTTP error or with an error frame, if it is invalid', async () => {
    const box = await sandbox();
    for (const [fault, params, headers, status, at] of refusals) {
      const answer = await speak(box, { text: 'Hi', ...params }, headers);
      expect(answer.status, fault).toBe(status);
      if (at !== undefined) expect(JSON.parse(answer.body), fault).toHaveProperty(at);
    }
    for (const [fault, params, code] of errorFrames) {
      const answer = await speak(box, params);
      expect(answer.status, fault).toBe(200);
      expect(framesOf(answer.body), fault).toMatchObject([{ code }]);
      expect(answer.body.includes('No readable text!'), fault).toBe(code === 45_002_001);
    }
    expect(readBill(box.stateDir)).toEqual([]);
  });

  test('is refused if it is sent to a wrong endpoint', async () => {
    const box = await sandbox();
    for (const wrong of ['/v1/api/v3/tts/unidirectional', '/tts/unidirectional', '/api/v3/tts']) {
      const answer = await box.call('POST', wrong, { body: {} });
      expect([answer.status, answer.at('error.code')]).toEqual([404, 'unsupported_endpoint']);
    }
  });
});

describe('a speech stream of the sandbox', () => {
  test.each([
    ['[speech-error]', undefined, 0, 55_000_000],
    ['[speech-breaks]', undefined, 0.5, 55_000_000],
    ['[speech-cut]', undefined, 0.5, 0],
    ['[no-audio]', undefined, 0, 20_000_000],
    ['', 'tts-error-frame@25%', 0.25, 55_000_000],
    ['', 'tts-cut@75%', 0.75, 0],
  ])(
    'ends as documented for the word "%s" in the text and the fault "%s"',
    async (word, fault, share, last) => {
      const box = await sandbox({ faults: fault === undefined ? [] : [fault] });
      const spoken = `${'long text '.repeat(10)}${word}`;
      const frames = framesOf((await speak(box, { text: spoken, audio_params: { format: 'pcm' } })).body);
      const all = renderSpeech({ text: spoken, format: 'pcm', sampleRate: 24_000 }).length;
      expect(Math.abs(audioOf(frames).length / all - share)).toBeLessThan(0.1);
      expect(frames.at(-1)?.code).toBe(last);
    },
  );

  test('breaks, and is charged, if the fault is tts-reset', async () => {
    const box = await sandbox({ faults: ['tts-resetx1'] });
    await expect(speak(box, { text: 'Hello there' })).rejects.toThrow();
    expect(readBill(box.stateDir)).toHaveLength(1);
    expect((await speak(box, { text: 'Hello there' })).status).toBe(200);
  });

  test('is replaced by an error at no charge if the fault is tts-429 or tts-500', async () => {
    const box = await sandbox({ faults: ['tts-429x1', 'tts-500x1'] });
    expect((await speak(box, { text: 'Hi' })).status).toBe(429);
    expect((await speak(box, { text: 'Hi' })).status).toBe(500);
    expect(readBill(box.stateDir)).toEqual([]);
  });
});
