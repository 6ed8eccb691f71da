/** Who is spoken to: a gateway of the settings, or the embedded sandbox. */
export interface Gateway {
  baseUrl: URL;
  key: string;
  /** What `base_url` says in the records. */
  name: string;
  /** The least pause between polls, ms. */
  pollIntervalMs: number;
}
