import type { Settings } from '../../../config/resolve.ts';
import type { AuthScheme, Exchange } from '../../../exchange.ts';
import { parseJson } from '../../../json.ts';
import { escapeControls } from '../../../printable.ts';
import { redactHeaders } from '../../../redact.ts';
import { add, formatDecimal, parseDecimal, zero } from '../../../decimal.ts';
import type { Context } from '../../context.ts';
import { currencyOf, priceOf, type PriceQuery } from '../../../flows/prices.ts';
import type { Outcome } from '../../output/outcome.ts';

/** Returns the exact request that would be sent, with the key redacted. Nothing is sent, and no key is needed. */
export function dryRun(exchange: Exchange, auth: AuthScheme, settings: Settings): Outcome {
  const body = exchange.body ?? '';
  const url = urlOf(exchange, settings);
  const headers = redactHeaders({ ...exchange.headers, [auth.header]: `${auth.scheme} key`.trim() }, [
    auth.header,
  ]);
  const json = body === '' ? undefined : parseJson(body);
  // The prompt may come from a stranger's file.
  const shown = json === undefined ? '' : escapeControls(JSON.stringify(json, undefined, 2));
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  return {
    json: { request: { method: exchange.method, url, headers, body: json } },
    text: [`${exchange.method} ${url}`, ...lines, '', shown].join('\n'),
  };
}

/** Returns a dry run with the maximum total cost of its requests, if every price is known. */
export async function withCost(
  outcome: Outcome,
  requests: readonly PriceQuery[],
  context: Context,
): Promise<Outcome> {
  const settings = await context.settings();
  let sum = zero;
  for (const asked of requests) {
    const { cost } = priceOf(asked, settings);
    if (cost === undefined) return outcome;
    sum = add(sum, parseDecimal(cost.at_most));
  }
  const most = formatDecimal(sum);
  context.progress.note(`This costs at most ${most} ${currencyOf(settings)}.`);
  return { ...outcome, json: { ...outcome.json, cost: { at_most: most } } };
}

function urlOf(exchange: Exchange, settings: Settings): string {
  if (settings.sandbox.value) return `${settings.sandboxUrl ?? 'http://127.0.0.1:<sandbox>'}${exchange.path}`;
  return `${settings.baseUrl?.value.replace(/\/$/, '') ?? '<base URL>'}${exchange.path}`;
}
