import type { Settings } from '../../../config/resolve.ts';
import type { AuthScheme, Exchange } from '../../../exchange.ts';
import { parseJson } from '../../../json.ts';
import { redactHeaders } from '../../../redact.ts';
import type { Outcome } from '../../output/outcome.ts';

/** The exact request that would be sent, with the key redacted; nothing is sent, and no key is needed. */
export function dryRun(exchange: Exchange, auth: AuthScheme, settings: Settings): Outcome {
  const body = exchange.body ?? '';
  const url = urlOf(exchange, settings);
  const headers = redactHeaders({ ...exchange.headers, [auth.header]: `${auth.scheme} key`.trim() }, [
    auth.header,
  ]);
  const json = body === '' ? undefined : parseJson(body);
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  return {
    json: { request: { method: exchange.method, url, headers, body: json } },
    text: [`${exchange.method} ${url}`, ...lines, '', JSON.stringify(json, undefined, 2)].join('\n'),
  };
}

function urlOf(exchange: Exchange, settings: Settings): string {
  if (settings.sandbox.value) return `${settings.sandboxUrl ?? 'http://127.0.0.1:<sandbox>'}${exchange.path}`;
  return `${settings.baseUrl?.value.replace(/\/$/, '') ?? '<base URL>'}${exchange.path}`;
}
