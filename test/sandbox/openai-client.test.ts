import OpenAI from 'openai';
import { expect, test } from 'vitest';
import { sandbox } from './harness.ts';

// Returns an independent client of the sandbox's Responses API.
async function client(): Promise<OpenAI> {
  const { url, key } = await sandbox();
  return new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
}

test('the OpenAI client reads a complete response of the sandbox', async () => {
  const openai = await client();
  const response = await openai.responses.create({ model: 'text-1', input: 'Say hello' });
  expect(response.output_text).toBe('The sandbox was asked: Say hello');
  expect(response.status).toBe('completed');
});

test('the OpenAI client reassembles a streamed response of the sandbox', async () => {
  const openai = await client();
  const stream = openai.responses.stream({ model: 'text-1', input: 'Say hello' });
  let text = '';
  stream.on('response.output_text.delta', ({ delta }) => (text += delta));
  const response = await stream.finalResponse();
  expect(text).toBe('The sandbox was asked: Say hello');
  expect(response.output_text).toBe(text);
});

test('the OpenAI client reads errors of every kind from the sandbox', async () => {
  const openai = await client();
  const call = (body: object): Promise<unknown> => openai.responses.create(body as never);
  await expect(call({ model: 'text-1' })).rejects.toBeInstanceOf(OpenAI.BadRequestError);
  await expect(call({ model: 'nobody', input: 'Hi' })).rejects.toBeInstanceOf(OpenAI.InternalServerError);
  const stranger = openai.withOptions({ apiKey: 'wrong' });
  await expect(stranger.responses.create({ model: 'text-1', input: 'Hi' })).rejects.toBeInstanceOf(
    OpenAI.AuthenticationError,
  );
});

test('the OpenAI client reads the model list of the sandbox', async () => {
  const openai = await client();
  const models = await openai.models.list();
  expect(models.data.map(({ id }) => id)).toContain('text-1');
});
