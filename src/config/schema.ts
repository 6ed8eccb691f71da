import * as z from 'zod/mini';

/** The default value for a flag of `submit`. */
const flagDefault = z.union([z.string(), z.number(), z.boolean(), z.array(z.string())]);

// Keyed by model, then by the flag's long name without dashes (`aspect-ratio` or `aspect_ratio`).
const modelDefaults = z.record(z.string(), z.record(z.string(), flagDefault));

const text = z.optional(z.string());
const flag = z.optional(z.boolean());
const count = z.optional(z.int());
const amount = z.optional(z.union([z.string(), z.number()]));
// Keyed by model. A value looks like `second=0.12; resolution=2K: second=0.40`.
const modelPrices = z.record(z.string(), z.string());
// Checks only the spelling, not whether the protocol exists, because another version of mgw may have written the file.
const protocolName = z.string().check(z.regex(/^[a-z][a-z0-9-]*$/));

/**
 * A profile in the config file (design 3). Durations are strings with a unit (`20m`). Checks only the shape. The code
 * that uses a value checks it, so that the message can name the value's source.
 */
export const profileSchema = z.strictObject({
  base_url: text,
  api_key: text,
  allow_http: flag,
  allow_insecure_database: flag,
  trusted_origins: z.optional(z.array(z.string())),
  timeout: text,
  poll_interval: text,
  request_timeout: text,
  retries: count,
  submit: z.optional(z.strictObject({ retry_5xx: flag })),
  tts: z.optional(z.strictObject({ speaker: text, format: text, sample_rate: count })),
  c: z.optional(z.strictObject({ auth_header: text, auth_scheme: text })),
  sandbox: z.optional(
    z.strictObject({
      pace: text,
      balance: amount,
      concurrency: count,
      per_minute: count,
    }),
  ),
  store: z.optional(
    z.strictObject({ url: text, endpoint: text, expires: text, command: z.optional(z.array(z.string())) }),
  ),
  state: text,
  update_url: text,
  budget: text,
  currency: text,
  prices: z.optional(
    z.catchall(z.object({ tts: text, group_multiplier: amount, user_multiplier: amount }), modelPrices),
  ),
  defaults: z.optional(
    z.strictObject({
      video: z.optional(z.record(protocolName, modelDefaults)),
    }),
  ),
});

/** The whole config file: the profiles by name, and the name of the default profile. */
export const configSchema = z.strictObject({
  profile: text,
  profiles: z._default(z.record(z.string(), profileSchema), {}),
});

export type Profile = z.infer<typeof profileSchema>;
export type ConfigFile = z.infer<typeof configSchema>;
export type FlagDefault = z.infer<typeof flagDefault>;

/** Validates a config. Returns the config, or a one-line description of the first invalid member. */
export function checkConfig(value: unknown): { file: ConfigFile } | { problem: string } {
  const result = z.safeParse(configSchema, value);
  if (result.success) return { file: result.data };
  const issue = result.error.issues[0];
  const path = issue?.path.map(String).join('.') || 'the file';
  return { problem: `${path}: ${issue === undefined ? 'not a config' : explain(issue)}` };
}

function explain(issue: z.core.$ZodIssue): string {
  if (issue.code === 'unrecognized_keys') return `unknown setting ${issue.keys.join(', ')}`;
  if (issue.code === 'invalid_type') return `it must be of type ${issue.expected}`;
  return 'it must be a string, a number, true or false, or a list of strings';
}
