import type { GatewayClient, StreamedReply } from './client.ts';
import { TransportError } from './transport-error.ts';

type Redact = (text: string) => string;

/** The maximum number of bytes to read from a refusal's body. */
export const maxRefusalBytes = 1024 * 1024;

/**
 * Returns a client that removes secrets from responses, because gateways quote keys. Removes secrets before any text is
 * truncated, because half of a Base64 key is not recognized. Does not change a successful stream: a reader that
 * converts the stream to text must call `clean`.
 */
export function redactingClient(client: GatewayClient, redact: Redact): GatewayClient {
  return {
    ...client,
    exchange: async (request, options) => {
      const reply = await client.exchange(request, options);
      return { ...reply, text: redact(reply.text), headers: cleanHeaders(reply.headers, redact) };
    },
    stream: async (request, options) => {
      const response = await client.stream(request, options);
      const body = response.status < 300 ? response.body : cleanBody(response, redact);
      return { ...response, headers: cleanHeaders(response.headers, redact), body, clean: redact };
    },
  };
}

/** Returns headers with all secrets removed from their values. */
export function cleanHeaders(headers: Record<string, string>, redact: Redact): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, redact(value)]));
}

// Redacts the body as a whole. If it is cut off or too long, passes on what arrived before throwing the error.
async function* cleanBody({ body }: StreamedReply, redact: Redact): AsyncIterable<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  let breakError: TransportError | undefined;
  try {
    for await (const chunk of body) {
      chunks.push(chunk);
      size += chunk.length;
      if (size > maxRefusalBytes)
        throw new TransportError('sent', 'broken', 'the response is longer than 1 MiB');
    }
  } catch (error) {
    if (!(error instanceof TransportError)) throw error;
    breakError = error;
  }
  yield Buffer.from(redact(Buffer.concat(chunks).toString('utf8')));
  if (breakError !== undefined) throw breakError;
}
