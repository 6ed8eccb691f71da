import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { bearer, type Exchange } from '../../src/exchange.ts';
import { readBounded } from '../../src/http/body.ts';
import { createClient, type GatewayClient } from '../../src/http/client.ts';
import { maxRefusalBytes, redactingClient } from '../../src/http/redacting-client.ts';
import { secretRedactor } from '../../src/redact.ts';

const key = 'sk-canary-5d41402abc4b2a76b9719d911017c592';
const encoded = Buffer.from(key).toString('base64');
const get: Exchange = { method: 'GET', path: '/', headers: {} };
const call = { auth: bearer, timeoutMs: 5000 };

const open: { client: GatewayClient; server: Server }[] = [];
afterEach(async () => {
  for (const { client, server } of open.splice(0)) {
    client.close();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});

/** Starts a gateway whose responses contain the received key and end after `cut` bytes. */
async function mirror(status: number, cut?: number): Promise<GatewayClient> {
  const server = createServer((request, response) => {
    const body = Buffer.from(`you sent ${request.headers.authorization ?? ''} (${encoded})`);
    response.writeHead(status, { 'content-length': body.length, 'x-request-id': key });
    if (cut === undefined) response.end(body);
    else response.write(body.subarray(0, cut), () => setImmediate(() => response.destroy()));
  });
  return clientOf(server);
}

async function clientOf(server: Server): Promise<GatewayClient> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const baseUrl = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const client = createClient({ baseUrl, key, userAgent: 'test' });
  open.push({ client, server });
  return redactingClient(client, secretRedactor([key]));
}

async function textOf(body: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

it.each([200, 401, 502])(
  'a response with HTTP %i never contains the key in its body or headers',
  async (status) => {
    const reply = await (await mirror(status)).exchange(get, call);
    expect(reply.text).toBe('you sent Bearer [redacted] ([redacted])');
    expect(reply.headers['x-request-id']).toBe('[redacted]');
    expect(reply.complete).toBe(true);
  },
);

it('a streamed refusal is redacted, and breaks off if the original breaks off', async () => {
  const whole = await (await mirror(403)).stream(get, call);
  expect(await textOf(whole.body)).toBe('you sent Bearer [redacted] ([redacted])');
  const broken = await (await mirror(403, 60)).stream(get, call);
  await expect(textOf(broken.body)).rejects.toMatchObject({ phase: 'sent' });
});

it('a streamed refusal that is too long is treated as truncated, even if its redacted form is short', async () => {
  const server = createServer((_, response) => void response.writeHead(503).end(key.repeat(100_000)));
  const client = await clientOf(server);
  const { body } = await client.stream(get, call);
  const { bytes, complete } = await readBounded(body, maxRefusalBytes);
  expect([bytes.length < maxRefusalBytes, complete]).toEqual([true, false]);
});

it('a successful stream is unchanged, and includes a function that redacts text from the stream', async () => {
  const answer = await (await mirror(200)).stream(get, call);
  const text = await textOf(answer.body);
  expect(text).toContain(key);
  expect(answer.headers['x-request-id']).toBe('[redacted]');
  expect(answer.clean?.(text)).toBe('you sent Bearer [redacted] ([redacted])');
});
