import type { JsonObject } from '../json.ts';

/** A model of the listing (specification 2.7). Its texts are the gateway's own and are escaped at output. */
export interface Model {
  /** The name used in requests, as it came. */
  id: string;
  /** The video protocols that the entry names, in alphabetical order. */
  protocols: string[];
  /** The entry's own marks as they came: `supported_endpoint_types`, `protocol` and the like. */
  endpoints: string[];
  /** What `ModelVersion` of Protocol B is chosen from; empty for other models. */
  model_versions: string[];
  owned_by?: string;
  /** Seconds since 1970. */
  created?: number;
  /** The entry as it came; of several entries of one id, the first. */
  raw: JsonObject;
}
